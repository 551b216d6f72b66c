package gateway

import (
	"slices"
	"testing"

	"tenantry/backends/driver"
	"tenantry/backends/mongo/mongotest"
	"tenantry/backends/record"
)

// TestQuestionsOnMongo runs on a server of the MongoDB protocol that explains queries. It asks each query that a kind
// declares, one for all records by identifier and one for a field that an organization defines. An index serves each
// query, and each index serves one.
func TestQuestionsOnMongo(t *testing.T) {
	t.Parallel()
	mongotest.URI(t)
	s := openServices(t)
	all := 0
	for _, spec := range slices.Concat(s.kinds.specs(), record.Specs(s.storedKinds())) {
		c := spec.Collection()
		questions := []mongotest.Question{{}}
		for _, access := range spec.Access {
			where, order := question(t, spec, c, access)
			questions = append(questions, mongotest.Question{Where: where, Sort: order})
		}
		if spec.Custom {
			custom := driver.Ref{Name: mongotest.CustomKey, Custom: true, Type: driver.Any}
			questions = append(questions, mongotest.Question{
				Where: driver.Predicate{Op: driver.Eq, Ref: custom, Values: []any{"1"}},
			})
		}
		unserved, unneeded, n := mongotest.Prove(t, c, questions)
		for _, q := range unserved {
			t.Errorf("%s: no index serves %s", spec.Name, q)
		}
		for _, x := range unneeded {
			t.Errorf("%s: no question needs the index %s", spec.Name, x)
		}
		t.Logf("%s: %d indexes, %d questions", spec.Name, n, len(questions))
		all += n
	}
	t.Logf("%d indexes in all", all)
}
