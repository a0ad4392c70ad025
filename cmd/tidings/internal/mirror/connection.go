package mirror

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tidings-io/tidings/cluster"
)

const (
	// checkInterval is the time between two checks of a connection, and checkIntervalSoon while it is
	// lost, and for an origin, of which a check costs nothing. A check that takes checkTimeout has failed.
	checkInterval, checkIntervalSoon = 5 * time.Second, time.Second
	checkTimeout                     = 5 * time.Second
)

var errNotChecked = errors.New("no answer yet")

// Connection is the state of the connection to a cluster's API server.
type Connection struct {
	// Reached says that the API server has answered at least once.
	Reached bool
	// Err says why the API server cannot be asked now. It is nil if it can.
	Err error
	// Since is when Err became nil, or not nil.
	Since time.Time
}

// Problem describes Err for readers, without the address of the API server. It is ""
// if there is none.
func (c Connection) Problem() string {
	switch {
	case c.Err == nil:
		return ""
	case !c.Reached:
		return "not connected yet: " + cluster.PublicMessage(c.Err)
	}
	return fmt.Sprintf("connection lost %s ago: %s", time.Since(c.Since).Round(time.Second), cluster.PublicMessage(c.Err))
}

// Connected returns the state of the connection.
func (c *Cluster) Connected() Connection { return c.connection.status() }

// connection keeps the state of the connection to a cluster.
type connection struct {
	wake chan struct{} // asks for a check at once; has room for one request

	mu    sync.Mutex
	state Connection
	back  chan struct{} // closed when a lost connection is back
}

func newConnection() *connection {
	return &connection{wake: make(chan struct{}, 1), back: make(chan struct{}), state: Connection{Err: errNotChecked, Since: time.Now()}}
}

// restored returns a channel that is closed when a lost connection is back.
func (c *connection) restored() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.back
}

func (c *connection) status() Connection {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// check asks for a check at once, unless the connection is lost already.
func (c *connection) check() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// set records the result of a check and returns the state before.
func (c *connection) set(err error) (before Connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before = c.state
	if (err == nil) != (before.Err == nil) {
		c.state.Since = time.Now()
	}
	if err == nil && before.Err != nil {
		close(c.back)
		c.back = make(chan struct{})
	}
	c.state.Err = err
	c.state.Reached = c.state.Reached || err == nil
	return before
}

// followConnection checks the connection until the cluster ends, and logs when it is
// lost and when it is back: once for the cluster, not for each of its resources. When it
// is back, they need not wait any longer.
func (c *Cluster) followConnection() {
	for {
		err := c.checkConnection()
		if c.ctx.Err() != nil {
			return
		}
		before := c.connection.set(err)
		took := time.Since(before.Since).Round(time.Millisecond)
		switch first := errors.Is(before.Err, errNotChecked); {
		case err == nil && !before.Reached:
			c.log.Info("connected", "took", took)
		case err == nil && before.Err != nil:
			c.log.Info("connected again", "after", took)
		case err != nil && first:
			c.log.Warn("cannot connect; trying until it succeeds", "err", err)
		case err != nil && before.Err == nil:
			c.log.Warn("connection lost; trying until it is back", "err", err)
		}
		interval, wake := checkInterval, c.connection.wake
		if err != nil || c.Origin() != nil {
			interval, wake = checkIntervalSoon, nil
		}
		timer := time.NewTimer(interval)
		select {
		case <-timer.C:
		case <-wake:
		case <-c.ctx.Done():
		}
		timer.Stop()
	}
}

// checkConnection asks the API server whether it is ready. An API server that does not
// let the mirror ask is reached nevertheless. The error does not name the cluster: it is
// shown and logged beside the name.
func (c *Cluster) checkConnection() error {
	ctx, cancel := context.WithTimeout(c.ctx, checkTimeout)
	defer cancel()
	if origin := c.Origin(); origin != nil {
		return origin.Problem(ctx)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.cluster.BaseURL().JoinPath("readyz").String(), nil)
	if err != nil {
		return err // cannot happen: the URL is that of the cluster
	}
	resp, err := c.cluster.HTTPClient().Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body := io.LimitReader(resp.Body, 64<<10)
	defer func() { _, _ = io.Copy(io.Discard, body) }() // the connection is used again
	switch {
	case resp.StatusCode == http.StatusUnauthorized:
		return apierrors.NewUnauthorized("the API server does not accept the mirror's credentials")
	case resp.StatusCode >= http.StatusInternalServerError:
		return fmt.Errorf("the API server is not ready: %s%s", resp.Status, failedChecks(body))
	}
	return nil
}

// failedChecks returns the failed checks of an API server that is not ready, as in
// ", [-]etcd failed: reason withheld".
func failedChecks(body io.Reader) string {
	const most = 3
	var b strings.Builder
	n := 0
	for lines := bufio.NewScanner(body); n < most && lines.Scan(); {
		if line := lines.Text(); strings.HasPrefix(line, "[-]") {
			fmt.Fprintf(&b, ", %.100s", line)
			n++
		}
	}
	return b.String()
}
