package hostile

import (
	"math/rand/v2"
	"sync"
)

// generator makes up requests.
type generator struct {
	world *world
	seed  uint64

	mu sync.Mutex
	// What the administrator was given, for others to try: tokens of pages of the
	// Kubernetes API, pages and positions of the mirror's own routes.
	tokens, pages, positions []string
}

// plan makes up the request of a number.
func (g *generator) plan(r *rand.Rand) plan {
	p := plan{form: weighted(r, forms, func(f form) int { return f.weight }), seed: r.Uint64()}
	for range [...]int{0, 1, 1, 1, 1, 1, 1, 2, 2, 3}[r.IntN(10)] {
		p.twists = append(p.twists, applied{weighted(r, twists, func(t twist) int { return t.weight }), r.Uint64()})
	}
	return p
}

func weighted[T any](r *rand.Rand, from []T, weight func(T) int) T {
	all := 0
	for _, t := range from {
		all += weight(t)
	}
	n := r.IntN(all)
	for _, t := range from {
		if n -= weight(t); n < 0 {
			return t
		}
	}
	panic("there is nothing to choose from")
}

func (g *generator) one(r *rand.Rand, of *[]string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(*of) == 0 {
		return "nonsense"
	}
	return (*of)[r.IntN(len(*of))]
}

func (g *generator) token(r *rand.Rand) string    { return g.one(r, &g.tokens) }
func (g *generator) page(r *rand.Rand) string     { return g.one(r, &g.pages) }
func (g *generator) position(r *rand.Rand) string { return g.one(r, &g.positions) }
