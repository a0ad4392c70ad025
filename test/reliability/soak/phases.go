package soak

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

// phases builds the cluster, starts the readers, makes changes, injects faults, and at
// the end checks that everything is as before.
func (s *soak) phases(ctx context.Context, group *errgroup.Group) error {
	churn, err := newChurn(s.cp.AdminConfig(), s.report)
	if err != nil {
		return err
	}
	s.log.Info("making what there is at first")
	if err := churn.build(ctx); err != nil {
		return fmt.Errorf("make what there is at first: %w", err)
	}
	if err := s.begin(ctx, group); err != nil {
		return err
	}
	s.report.mu.Lock()
	s.report.begun = time.Now()
	s.report.mu.Unlock()
	busy, stop := context.WithTimeout(ctx, s.options.For)
	defer stop()
	if s.options.UntilFound {
		go func() {
			select {
			case <-s.report.found:
				stop()
			case <-busy.Done():
			}
		}()
	}
	acting, _ := errgroup.WithContext(busy)
	for i := range workers {
		acting.Go(func() error { return churn.run(busy, s.random(fmt.Sprint("churn ", i)), s.options.Rate/workers) })
	}
	s.log.Info("things happen")
	// A run until the first mismatch, or a short one, does not measure the processes.
	if !s.options.UntilFound && s.options.For >= leastMeasured && Sleep(busy, time.Duration(float64(s.options.For)*warmUp)) {
		resume := churn.pause()
		s.log.Info("all is quiet, to see what the processes take")
		if err := churn.restore(ctx); err != nil {
			return fmt.Errorf("make what there was at first: %w", err)
		}
		if err := s.quiet(ctx); err != nil {
			return err
		}
		s.report.setBaselines(s.settle(ctx, func(*part) Usage { return Usage{} }))
		resume()
	}
	acting.Go(func() error { return s.measure(busy) })
	if s.options.Faults {
		s.log.Info("things go wrong")
		acting.Go(func() error { return s.breakThings(busy, s.random("faults"), s.faults) })
	}
	if err := acting.Wait(); err != nil {
		return err
	}
	if ctx.Err() != nil || s.options.UntilFound && len(s.report.Mismatches()) > 0 {
		return ctx.Err()
	}
	return s.finish(ctx, churn)
}

// finish restores the cluster and checks that the processes take what they took before.
func (s *soak) finish(ctx context.Context, churn *churn) error {
	s.log.Info("all is over: everything is to be as it was")
	if err := churn.restore(ctx); err != nil {
		return fmt.Errorf("make what there was at first: %w", err)
	}
	if err := s.quiet(ctx); err != nil {
		return err
	}
	record := s.report.fault("none: at the end")
	fast, slow := s.report.readers()
	if s.recover(ctx, append(fast, slow...), s.truth.newest(), time.Now(), record); ctx.Err() != nil {
		return ctx.Err()
	}
	if s.options.For >= leastMeasured {
		s.report.setFinals(s.settle(ctx, s.report.allowed))
	}
	return nil
}

// quiet waits until nothing changes in the cluster.
func (s *soak) quiet(ctx context.Context) error {
	patience, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	sum := func() (n int) {
		for _, r := range resources {
			n += s.truth.count(r.stored)
		}
		return n
	}
	for last, since := sum(), time.Now(); time.Since(since) < 4*time.Second; {
		if !Sleep(patience, 200*time.Millisecond) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return errors.New("the cluster does not come to rest within two minutes")
		}
		if now := sum(); now != last {
			last, since = now, time.Now()
		}
	}
	return nil
}
