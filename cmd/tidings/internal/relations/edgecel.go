package relations

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/json"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	strictjson "sigs.k8s.io/json"
)

// Bounds of expressions, in the unit of cost that Kubernetes has: it allows a validation
// rule 1,000,000, which takes some tenth of a second.
const (
	maxCost      = 100_000   // of one evaluation
	maxTotalCost = 2_000_000 // of all for one tree
	maxNamed     = maxNeighbours
)

var errCostly = fmt.Errorf("the expressions of --edges cost more than %d together", maxTotalCost)

// expression says, in CEL, what an object names or selects.
type expression struct {
	text    string
	program cel.Program
}

// compileError is what is wrong with an expression, at which line and column of it, both
// from 1.
type compileError struct {
	line, column int
	message      string
}

// expressions is the environment of expressions: that of Kubernetes, and the variable self.
var expressions = sync.OnceValues(func() (*cel.Env, error) {
	kubernetes := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	return kubernetes.NewExpressionsEnv().Extend(cel.Variable("self", cel.DynType))
})

// compile checks an expression: its result must be able to be a name, a list of names or
// a label selector.
func compile(text string) (*expression, []compileError) {
	fail := func(err error) []compileError { return []compileError{{1, 1, err.Error()}} }
	env, err := expressions()
	if err != nil {
		return nil, fail(err)
	}
	ast, issues := env.Compile(text)
	if issues.Err() != nil {
		var wrong []compileError
		for _, e := range issues.Errors() {
			wrong = append(wrong, compileError{max(e.Location.Line(), 1), max(e.Location.Column(), 0) + 1, e.Message})
		}
		return nil, wrong
	}
	if !mayLead(ast.OutputType()) {
		return nil, fail(fmt.Errorf("the expression gives %s; it must give a name, a list of names, or a label selector", ast.OutputType()))
	}
	program, err := env.Program(ast, cel.CostLimit(maxCost), cel.InterruptCheckFrequency(celconfig.CheckFrequency))
	if err != nil {
		return nil, fail(err)
	}
	return &expression{strings.Join(strings.Fields(text), " "), program}, nil
}

// mayLead reports whether values of a type can say where an edge leads.
func mayLead(t *cel.Type) bool {
	switch t.Kind() {
	case types.DynKind, types.StringKind, types.NullTypeKind:
		return true
	case types.ListKind:
		return t.Parameters()[0].Kind() == types.StringKind || t.Parameters()[0].Kind() == types.DynKind
	case types.MapKind:
		return t.Parameters()[0].Kind() == types.StringKind || t.Parameters()[0].Kind() == types.DynKind
	case types.OpaqueKind:
		return t.TypeName() == "optional_type" && mayLead(t.Parameters()[0])
	}
	return false
}

// evaluate returns what an object leads to, and takes the cost from the budget.
func (e *expression) evaluate(ctx context.Context, self map[string]any, budget *uint64) (names []string, selector labels.Selector, err error) {
	if *budget == 0 {
		return nil, nil, errCostly
	}
	out, details, err := e.program.ContextEval(ctx, map[string]any{"self": self})
	cost := uint64(maxCost) // if it is not known
	if details != nil && details.ActualCost() != nil {
		cost = *details.ActualCost()
	}
	*budget -= min(*budget, max(cost, 1))
	if err != nil {
		return nil, nil, err
	}
	return leads(out)
}

var errLeadsNowhere = errors.New("it gives neither a name, nor a list of names, nor a label selector")

// leads reads the result of an expression.
func leads(out ref.Val) (names []string, selector labels.Selector, err error) {
	switch v := out.(type) {
	case types.Null:
		return nil, nil, nil
	case *types.Optional:
		if !v.HasValue() {
			return nil, nil, nil
		}
		return leads(v.GetValue())
	case types.String:
		return []string{string(v)}, nil, nil
	case traits.Mapper:
		selector, err := selectorOf(v)
		return nil, selector, err
	case traits.Lister:
		for it := v.Iterator(); it.HasNext() == types.True; {
			name, ok := it.Next().(types.String)
			switch {
			case !ok:
				return names, nil, errLeadsNowhere
			case len(names) == maxNamed:
				return names, nil, fmt.Errorf("it gives more than %d names; the others are not looked at", maxNamed)
			}
			names = append(names, string(name))
		}
		return names, nil, nil
	}
	return nil, nil, errLeadsNowhere
}

// selectorOf reads a map as a label selector of Kubernetes.
func selectorOf(m traits.Mapper) (labels.Selector, error) {
	value, err := m.ConvertToNative(types.JSONValueType)
	if err != nil {
		return nil, fmt.Errorf("read it as a label selector: %w", err)
	}
	text, err := protojson.Marshal(value.(*structpb.Value))
	if err != nil {
		return nil, fmt.Errorf("read it as a label selector: %w", err)
	}
	var parsed metav1.LabelSelector
	unknown, err := strictjson.UnmarshalStrict(text, &parsed)
	if err = errors.Join(append(unknown, err)...); err != nil {
		return nil, fmt.Errorf("read it as a label selector: %w", err)
	}
	return metav1.LabelSelectorAsSelector(&parsed)
}

// splitName splits a name that an expression gives: NAMESPACE/NAME, or NAME of an object
// in the given namespace or, if its kind is not namespaced, in none.
func splitName(given, namespace string, namespaced bool) (in, name string, err error) {
	in, name, qualified := strings.Cut(given, "/")
	if !qualified {
		in, name = namespace, given
	}
	switch {
	case qualified && !namespaced:
		return "", "", fmt.Errorf("%q has a namespace, and the objects are not namespaced", given)
	case !namespaced:
		in = ""
	case in == "":
		return "", "", fmt.Errorf("%q has no namespace", given)
	case content.IsPathSegmentName(in) != nil:
		return "", "", fmt.Errorf("%q is not a name", given)
	}
	if name == "" || content.IsPathSegmentName(name) != nil {
		return "", "", fmt.Errorf("%q is not a name", given)
	}
	return in, name, nil
}

// self returns an object as expressions see it: a Secret without its data, and without
// the annotation that may repeat it.
func (o Object) self() (map[string]any, error) {
	var self map[string]any
	if err := json.Unmarshal(o.json, &self); err != nil {
		return nil, err
	}
	if kindName(o.APIVersion, o.Kind) == "Secret" {
		delete(self, "data")
		delete(self, "stringData")
		if meta, ok := self["metadata"].(map[string]any); ok {
			if annotations, ok := meta["annotations"].(map[string]any); ok {
				delete(annotations, corev1.LastAppliedConfigAnnotation)
			}
		}
	}
	return self, nil
}
