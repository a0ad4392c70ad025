package relations

// explains are the relations by which what is wrong with an object may come from what is
// wrong with one that it names or selects. With true, it may even if nothing is wrong with
// the object itself: nobody keeps an eye on the health of a Service.
var explains = map[string]bool{
	"selects": true, "leads to": true, "routes to": true, "has the certificate": true, "scales": true,
	"uses": false, "mounts": false, "runs on": false, "is kept off": false, "is bound to": false,
	"is refused by": false, "was refused as": false, "tells of": true,
}

// causeOf returns the way to the deepest object with something wrong: what is wrong with
// an owner is most often what is wrong with what it owns, and that may come from what it
// needs. leads are the neighbours that may explain what is wrong with an object.
func causeOf(n *Node, leads map[*Node][]*Node) []Cause {
	return longest(n, leads, map[*Node]bool{})
}

func longest(n *Node, leads map[*Node][]*Node, on map[*Node]bool) []Cause {
	if on[n] {
		return nil
	}
	on[n] = true
	defer delete(on, n)
	var deepest []Cause
	try := func(next *Node) {
		if below := longest(next, leads, on); len(below) > len(deepest) {
			deepest = below
		}
	}
	for _, child := range n.Children {
		try(child)
	}
	if !n.lacks { // else it is known what is missing
		for _, other := range leads[n] {
			try(other)
		}
	}
	if len(n.Wrong) > 0 {
		return append([]Cause{{n.Ref, n.Wrong[len(n.Wrong)-1]}}, deepest...)
	}
	return deepest
}
