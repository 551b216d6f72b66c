package mongo

import (
	"slices"
	"strings"
	"testing"

	"tenantry/backends/driver"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// plans returns answers of explain of several server versions, reduced to the parts about finding documents. NAME, ID
// and CUSTOM stand for the names of the indexes on the name, on the identifier and on custom values.
func plans() map[string]struct {
	answer string
	want   driver.Plan
	none   bool
} {
	const (
		org    = `"org_id":["[\"org-1\", \"org-1\"]"]`
		byName = `{"stage":"IXSCAN","keyPattern":{"org_id":1,"name":1,"_id":1},"indexName":"NAME","isMultiKey":false,"multiKeyPaths":{"org_id":[],"name":[],"_id":[]},"isUnique":false,"isSparse":false,"isPartial":false,"indexVersion":2,"direction":"forward","indexBounds":{` + org + `,"name":["[\"Ada\", \"Ada\"]"],"_id":["[MinKey, MaxKey]"]}}`
		inName = `{"stage":"IXSCAN","keyPattern":{"org_id":1,"name":1,"_id":1},"indexName":"NAME","direction":"backward","indexBounds":{"org_id":["[\"org-1\", \"org-1\"]"],"name":["[MaxKey, MinKey]"],"_id":["[MaxKey, MinKey]"]}}`
		byID   = `{"stage":"IXSCAN","keyPattern":{"org_id":1,"_id":1},"indexName":"ID","indexBounds":{` + org + `,"_id":["(\"org-1/a\", {})"]}}`
		inID   = `{"stage":"IXSCAN","keyPattern":{"org_id":1,"_id":1},"indexName":"ID","indexBounds":{` + org + `,"_id":["[MinKey, MaxKey]"]}}`
		custom = `{"stage":"IXSCAN","keyPattern":{"org_id":1,"$_path":1,"custom.a%2Eb":1},"indexName":"CUSTOM","isMultiKey":true,"indexBounds":{` + org + `,"$_path":["[\"custom.a%2Eb\", \"custom.a%2Eb\"]"],"custom.a%2Eb":["[\"gold\", \"gold\"]"]}}`
		prefix = `{"stage":"IXSCAN","keyPattern":{"org_id":1,"$_path":1},"indexName":"CUSTOM","indexBounds":{` + org + `,"$_path":["[MinKey, MinKey]","[\"\", {})"]}}`
		count  = `{"stage":"COUNT_SCAN","keyPattern":{"org_id":1,"_id":1},"indexName":"ID","indexBounds":{"startKey":{"org_id":"org-1","_id":{"$minKey":1}},"startKeyInclusive":true,"endKey":{"org_id":"org-1","_id":{"$maxKey":1}},"endKeyInclusive":true}}`
	)
	fetch := func(in string) string {
		return `{"stage":"FETCH","filter":{"stage":{"$eq":"x"}},"inputStage":` + in + `}`
	}
	query := func(version, winning string) string {
		return `{"explainVersion":"` + version + `","queryPlanner":{"namespace":"d.things","parsedQuery":{"$and":[{"org_id":{"$eq":"org-1"}},{"inputStage":{"stage":"COLLSCAN"}}]},"winningPlan":` + winning +
			`,"rejectedPlans":[{"stage":"FETCH","inputStage":` + inID + `}]},"command":{"find":"things","filter":{"queryPlanner":{"stage":"COLLSCAN"}}},"serverInfo":{"version":"7.0.5"},"ok":1.0}`
	}
	sbe := func(in string) string {
		return `{"isCached":false,"queryPlan":` + in + `,"slotBasedPlan":{"slots":"$$RESULT=s4","stages":"[2] nlj inner [] [s1, s2] \n left \n [1] cfilter"}}`
	}
	type answers = map[string]struct {
		answer string
		want   driver.Plan
		none   bool
	}
	return answers{
		"6.0, a field":                     {query("1", fetch(byName)), driver.Plan{Index: "name"}, false},
		"6.0, a field, in batches":         {query("1", `{"stage":"LIMIT","limitAmount":5,"inputStage":{"stage":"SORT","inputStage":`+fetch(byName)+`}}`), driver.Plan{Index: "name"}, false},
		"6.0, an order":                    {query("1", `{"stage":"LIMIT","inputStage":`+fetch(inName)+`}`), driver.Plan{Index: "name", Every: true}, false},
		"6.0, nothing":                     {query("1", `{"stage":"COLLSCAN","filter":{"org_id":{"$eq":"org-1"}},"direction":"forward"}`), driver.Plan{Every: true}, false},
		"6.0, by _id":                      {query("1", `{"stage":"IDHACK"}`), driver.Plan{Index: "id"}, false},
		"6.0, alternatives":                {query("1", fetch(`{"stage":"OR","inputStages":[`+byName+`,`+byID+`]}`)), driver.Plan{Index: "name"}, false},
		"6.0, an alternative of all":       {query("1", `{"stage":"SUBPLAN","inputStage":`+fetch(`{"stage":"OR","inputStages":[`+byID+`,`+inName+`]}`)+`}`), driver.Plan{Index: "id", Every: true}, false},
		"6.0, a count":                     {query("1", `{"stage":"COUNT","inputStage":`+count+`}`), driver.Plan{Every: true}, false},
		"6.0, none of that name":           {query("1", `{"stage":"EOF"}`), driver.Plan{}, false},
		"7.0, the slot-based engine":       {query("2", sbe(fetch(byName))), driver.Plan{Index: "name"}, false},
		"7.0, the slot-based engine, all":  {query("2", sbe(`{"stage":"COLLSCAN","planNodeId":1,"direction":"forward"}`)), driver.Plan{Every: true}, false},
		"7.0, a defined field":             {query("1", fetch(custom)), driver.Plan{Index: "a.b"}, false},
		"7.0, the head of a wildcard":      {query("1", fetch(prefix)), driver.Plan{Index: "custom", Every: true}, false},
		"7.0, an aggregation":              {`{"explainVersion":"1","stages":[{"$cursor":{"queryPlanner":{"winningPlan":{"stage":"PROJECTION_COVERED","inputStage":` + byID + `},"rejectedPlans":[]}}},{"$group":{"_id":{"$const":1},"n":{"$sum":{"$const":1}}}}],"ok":1.0}`, driver.Plan{Index: "id"}, false},
		"7.0, an aggregation, slot-based":  {query("2", sbe(`{"stage":"GROUP","planNodeId":3,"inputStage":`+inID+`}`)), driver.Plan{Every: true}, false},
		"7.0, a shard":                     {`{"queryPlanner":{"mongosPlannerVersion":1,"winningPlan":{"stage":"SINGLE_SHARD","shards":[{"shardName":"s1","connectionString":"s1/h:1","namespace":"d.things","parsedQuery":{},"winningPlan":{"stage":"FETCH","inputStage":` + byName + `},"rejectedPlans":[]}]}},"ok":1.0}`, driver.Plan{Index: "name"}, false},
		"7.0, an aggregation of shards":    {`{"serverInfo":{},"mergeType":"mongos","splitPipeline":{"shardsPart":[{"$match":{}}],"mergerPart":[]},"shards":{"s1":{"host":"h:1","queryPlanner":{"winningPlan":` + byName + `}},"s2":{"host":"h:2","stages":[{"$cursor":{"queryPlanner":{"winningPlan":` + inName + `}}}]}},"ok":1.0}`, driver.Plan{Index: "name", Every: true}, false},
		"8.0, the express way":             {query("1", `{"isCached":false,"stage":"EXPRESS_IXSCAN","keyPattern":"{ _id: 1 }","indexName":"_id_"}`), driver.Plan{Index: "id"}, false},
		"8.0, the express way, clustered":  {query("1", `{"isCached":false,"stage":"EXPRESS_CLUSTERED_IXSCAN"}`), driver.Plan{Index: "id"}, false},
		"8.0, an index of somebody else's": {query("1", `{"isCached":false,"stage":"FETCH","inputStage":{"stage":"IXSCAN","keyPattern":{"name":1},"indexName":"mine","indexBounds":{"name":["[\"Ada\", \"Ada\"]"]}}}`), driver.Plan{Index: "mine"}, false},
		"another server":                   {`{"ok":1.0,"queryPlanner":{"plan":"Seq Scan on documents"}}`, driver.Plan{}, true},
		"nothing at all":                   {`{"ok":1.0}`, driver.Plan{}, true},
	}
}

// named replaces the placeholders in an answer with the names of the kind's indexes.
func named(k *kind, answer string) string {
	for i, d := range k.indexes {
		switch {
		case i == 0:
			answer = strings.ReplaceAll(answer, `"ID"`, `"`+d.name+`"`)
		case d.wildcard:
			answer = strings.ReplaceAll(answer, `"CUSTOM"`, `"`+d.name+`"`)
		case d.declared == "name" && !d.unique:
			answer = strings.ReplaceAll(answer, `"NAME"`, `"`+d.name+`"`)
		}
	}
	return answer
}

// TestExplain reads the plans of several servers. An answer without a plan is an error.
func TestExplain(t *testing.T) {
	t.Parallel()
	for name, about := range plans() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &script{answers: map[string][]bson.D{}}
			f := fake(t, &fakeServer{answer: s.answer}, nil).member("rs0")
			_, w, k := onFake(t, f)
			w.space = &space{db: k.coll.Database()}
			var answer bson.D
			if err := bson.UnmarshalExtJSON([]byte(named(k, about.answer)), false, &answer); err != nil {
				t.Fatal(err)
			}
			s.answers["explain"] = []bson.D{answer}
			for _, limit := range []int{0, 5} {
				got, err := w.Explain(t.Context(), driver.Query{Collection: things(), Limit: limit, Where: driver.Predicate{Op: driver.Eq, Ref: driver.Ref{Name: "a.b", Custom: true}, Values: []any{"gold"}}})
				if (err != nil) != about.none || got.Index != about.want.Index || got.Every != about.want.Every || len(got.Fields) != 1 || got.Fields[0].Index != "a.b" {
					t.Errorf("%+v, %v; want %+v", got, err, about.want)
				}
			}
		})
	}
	t.Run("refused", func(t *testing.T) {
		t.Parallel()
		s := &script{answers: map[string][]bson.D{"explain": {refusal(59, "CommandNotFound")}}}
		e, w, k := onFake(t, fake(t, &fakeServer{answer: s.answer}, nil).member("rs0"))
		w.space = &space{db: k.coll.Database()}
		for range 2 * breakAfter {
			if got, err := w.Explain(t.Context(), driver.Query{Collection: things(), Limit: 1}); err == nil {
				t.Fatalf("got %+v, want an error", got)
			}
		}
		if e.Refusing() {
			t.Error("refused explain commands opened the breaker")
		}
	})
}

// TestIndexableKeys: the keys of conditions that an index on custom values could serve.
func TestIndexableKeys(t *testing.T) {
	t.Parallel()
	on := func(o driver.Op, key string, custom bool) driver.Predicate {
		return driver.Predicate{Op: o, Ref: driver.Ref{Name: key, Custom: custom}, Values: []any{"x"}}
	}
	got := indexableKeys(driver.Predicate{Op: driver.And, Kids: []driver.Predicate{
		on(driver.Gte, "b", true), on(driver.Eq, "name", false), on(driver.Ne, "no", true), on(driver.Contains, "no", true),
		{Op: driver.Or, Kids: []driver.Predicate{on(driver.In, "a", true), on(driver.StartsWith, "b", true)}},
	}})
	if want := []string{"a", "b"}; !slices.Equal(got, want) {
		t.Errorf("indexableKeys = %q, want %q", got, want)
	}
}

// FuzzExplain: any answer of a server is read without a panic, and without a result if it has no plan.
func FuzzExplain(f *testing.F) {
	_, k := offline(f)
	for _, about := range plans() {
		var answer bson.D
		if err := bson.UnmarshalExtJSON([]byte(named(k, about.answer)), false, &answer); err != nil {
			f.Fatal(err)
		}
		raw, err := bson.Marshal(answer)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		p := planned{shape: k.shape}
		p.read(raw, false, 0)
		if !p.seen && (p.index != "" || p.every) {
			t.Errorf("index %q, every %t without a plan", p.index, p.every)
		}
	})
}
