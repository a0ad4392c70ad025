//go:build unix

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// pollInterval is how often a condition is polled that cannot be waited for.
const pollInterval = 20 * time.Millisecond

// poll calls ready until it returns nil, ctx ends, or stop is closed. Each call
// has a second, so that one that hangs does not take the time of the others.
func poll(ctx context.Context, stop <-chan struct{}, ready func(context.Context) error) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		attempt, cancel := context.WithTimeout(ctx, time.Second)
		last := ready(attempt)
		cancel()
		if last == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-stop:
			return last
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("gave up: %w", context.Cause(ctx)), last)
		}
	}
}
