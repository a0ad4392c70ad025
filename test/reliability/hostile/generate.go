package hostile

import "math/rand/v2"

// generator generates requests.
type generator struct {
	world *world
	// Issued to the administrator, for other callers to try: continue tokens of
	// the Kubernetes API, pages and positions of the mirror's own routes.
	tokens, pages, positions []string
	// since is when the present namespaces have changes of which their callers may read.
	since string
}

// plan returns the plan of the request with a number.
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
