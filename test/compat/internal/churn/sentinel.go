package churn

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/wait"
)

// settle waits until all objects are as they should be and the controller has
// nothing left to do.
func (r *runner) settle(ctx context.Context) error {
	if err := r.until(ctx, func(have []string) bool {
		return slices.Equal(slices.DeleteFunc(slices.Clone(have), isSentinel), r.plan.want(r.driver))
	}); err != nil {
		return err
	}
	for {
		before := r.recorder.count(func(c Call) bool { return !aboutSentinel(c) })
		if err := r.changeSentinel(ctx); err != nil {
			return err
		}
		if r.recorder.count(func(c Call) bool { return !aboutSentinel(c) }) == before {
			break
		}
	}
	return r.recorder.waitStable(ctx)
}

// changeSentinel changes the sentinel, then deletes its child, and waits each
// time until the controller has reacted. All earlier events of parents and
// children are then in the queue before the sentinel's, and the one worker has
// processed them.
func (r *runner) changeSentinel(ctx context.Context) error {
	r.sentinel = Parent{Managed: true, Value: r.sentinel.Value + 1, Size: 1}
	lit := func(have []string) bool {
		return !slices.ContainsFunc(r.driver.Expected(sentinel, r.sentinel), func(line string) bool { return !slices.Contains(have, line) })
	}
	if err := r.driver.Apply(ctx, sentinel, r.sentinel); err != nil {
		return err
	}
	if err := r.until(ctx, lit); err != nil {
		return err
	}
	if err := r.driver.DeleteChild(ctx, sentinel, r.sentinel, 0); err != nil {
		return err
	}
	return r.until(ctx, lit)
}

func isSentinel(line string) bool { return strings.Contains(line, sentinel) }

// until waits until the sorted lines of Actual are right.
func (r *runner) until(ctx context.Context, right func(have []string) bool) error {
	var have []string
	err := wait.PollUntilContextCancel(ctx, poll, true, func(ctx context.Context) (bool, error) {
		var err error
		have, err = r.driver.Actual(ctx)
		slices.Sort(have)
		return err == nil && right(have), err
	})
	if err != nil {
		return fmt.Errorf("%w; actual (-) and expected (+):\n%s", err, diffLines(have, append(r.plan.want(r.driver), r.driver.Expected(sentinel, r.sentinel)...)))
	}
	return nil
}
