package mirror

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
)

// getsAtOnce is how many objects of a resource the cluster is asked for at a time.
const getsAtOnce = 16

// newest returns the object of a query as it is now; nil if there is none.
//
// One object takes no proof that the mirror has everything: the cluster has it in a
// millisecond. So it is asked for the object, once for all who want it at a time.
// If it is being asked for many already it is left alone, and whoever wants another
// one waits, together with all others, for the mirror to be up to date.
func (m *Mirror) newest(ctx context.Context, q Query) (*Object, error) {
	k, err := m.at(ctx, q, Any, 0)
	if err != nil {
		return nil, err
	}
	var o *Object
	if err := k.during(ctx, func(ctx context.Context) (err error) {
		o, err = k.fresh.gets.do(ctx, types.NamespacedName{Namespace: q.Namespace, Name: q.Name})
		return err
	}); err == nil {
		return o, nil
	}
	return m.find(ctx, q, Latest, 0)
}

// getLive returns one object as the cluster has it; nil if there is none.
func (k *keeper) getLive(ctx context.Context, named types.NamespacedName) (*Object, error) {
	q := Query{Target: Target{member: k.member, Resource: k.resource}, Namespace: named.Namespace, Name: named.Name}
	o, _, err := live{k.member.mirror}.Get(ctx, q)
	if ReasonOf(err) == NotFound {
		return nil, nil
	}
	return o, err
}
