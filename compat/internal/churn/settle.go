package churn

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/wait"
)

// settle waits until everything is as it should be and the controller has
// nothing left to do.
func (r *runner) settle(ctx context.Context) error {
	if err := r.until(ctx, func(have []string) bool {
		return slices.Equal(slices.DeleteFunc(slices.Clone(have), isBeacon), r.plan.want(r.family))
	}); err != nil {
		return err
	}
	for {
		before := r.recorder.count(func(c Call) bool { return !aboutBeacon(c) })
		if err := r.lightBeacon(ctx); err != nil {
			return err
		}
		if r.recorder.count(func(c Call) bool { return !aboutBeacon(c) }) == before {
			break
		}
	}
	return r.recorder.followed(ctx)
}

// lightBeacon changes the beacon, then deletes its child, and waits each time
// until the controller has done what it has to. Events of parents and events of
// children that were told before are then in the queue, before the beacon's, and
// the one worker has dealt with them.
func (r *runner) lightBeacon(ctx context.Context) error {
	r.lit = Parent{Managed: true, Value: r.lit.Value + 1, Size: 1}
	lit := func(have []string) bool {
		return !slices.ContainsFunc(r.family.Want(beacon, r.lit), func(line string) bool { return !slices.Contains(have, line) })
	}
	if err := r.family.Apply(ctx, beacon, r.lit); err != nil {
		return err
	}
	if err := r.until(ctx, lit); err != nil {
		return err
	}
	if err := r.family.Kill(ctx, beacon, r.lit, 0); err != nil {
		return err
	}
	return r.until(ctx, lit)
}

func isBeacon(line string) bool { return strings.Contains(line, beacon) }

// until waits until what there is, in order, is right.
func (r *runner) until(ctx context.Context, right func(have []string) bool) error {
	var have []string
	err := wait.PollUntilContextCancel(ctx, poll, true, func(ctx context.Context) (bool, error) {
		var err error
		have, err = r.family.Have(ctx)
		slices.Sort(have)
		return err == nil && right(have), err
	})
	if err != nil {
		return fmt.Errorf("%w; what is there (-) and should be (+):\n%s", err, unlike(have, append(r.plan.want(r.family), r.family.Want(beacon, r.lit)...)))
	}
	return nil
}
