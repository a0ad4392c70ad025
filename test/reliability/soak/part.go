package soak

import (
	"context"
	"fmt"
	"sync"
	"syscall"
)

// part is a process of a run. It may be ended and started again.
type part struct {
	name, role string
	url        string // of "tidings serve", which stays the same; empty: it is something else
	launch     func(ctx context.Context) (*Process, error)
	measured   func(ctx context.Context, p *Process) (Usage, error)

	mu      sync.Mutex
	process *Process // nil: ended by the run
}

// start starts the process and returns when it is ready.
func (p *part) start(ctx context.Context) error {
	process, err := p.launch(ctx)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.process = process
	return nil
}

// running returns the process, nil while it is ended.
func (p *part) running() *Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.process
}

// kill ends the process as a crash does.
func (p *part) kill() error { return p.end((*Process).Kill) }

// stop ends the process as an administrator does.
func (p *part) stop() error { return p.end((*Process).Stop) }

func (p *part) end(how func(*Process) error) error {
	p.mu.Lock()
	process := p.process
	p.process = nil
	p.mu.Unlock()
	if process == nil {
		return nil
	}
	return how(process)
}

// pause stops the process in the middle of what it does, and resume lets it go on.
func (p *part) pause() error  { return p.running().cmd.Process.Signal(syscall.SIGSTOP) }
func (p *part) resume() error { return p.running().cmd.Process.Signal(syscall.SIGCONT) }

// usage returns what the process takes.
func (p *part) usage(ctx context.Context) (Usage, error) {
	process := p.running()
	if process == nil {
		return Usage{}, fmt.Errorf("%s is not running", p.name)
	}
	if p.measured != nil {
		return p.measured(ctx, process)
	}
	return process.Usage(ctx)
}

// watchOver returns an error if the process ends although the run has not ended it.
func (p *part) watchOver(ctx context.Context) error {
	for {
		process := p.running()
		if process == nil {
			if !Sleep(ctx, lookEvery) {
				return nil
			}
			continue
		}
		select {
		case <-process.Ended():
			if p.running() == process {
				return fmt.Errorf("%s ended by itself: %v\n%s", p.name, process.err, process.Log())
			}
		case <-ctx.Done():
			return nil
		}
	}
}
