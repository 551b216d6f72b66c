package mongo_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"tenantry/backends/driver"
	"tenantry/backends/mongo"
	"tenantry/backends/mongo/mongotest"
	"tenantry/backends/storetest"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
)

// The operators, patterns and names that the compiler may emit.
var (
	filterOperators     = []string{"$and", "$or", "$not", "$eq", "$ne", "$gt", "$gte", "$lt", "$lte", "$in", "$nin", "$exists", "$regex", "$elemMatch", "$type"}
	updateOperators     = []string{"$inc", "$max", "$setOnInsert"}
	stages              = []string{"$match", "$addFields", "$group", "$project", "$sort", "$skip", "$limit"}
	expressionOperators = []string{
		"$sum", "$min", "$max", "$addToSet", "$size", "$setDifference", "$cond", "$and", "$eq", "$gt", "$gte", "$lt", "$lte", "$ifNull", "$literal", "$divide",
		"$floor", "$multiply", "$add", "$toDate", "$toLong", "$convert", "$concat", "$substrCP", "$dateToString", "$month",
	}
	// Text in a pattern is literal, or a class of the cases of a letter. It contains no repetitions, groups or
	// alternatives.
	pattern    = regexp.MustCompile(`^(\^((\\[^[:alnum:]]|[[:alnum:]])*\[\\s\\S\]\*)?)?(\\x00|\\[^[:alnum:]]|[[:alnum:]]|[^\x00-\x7F]|\[[[:alnum:]\p{L}\p{M}\p{N}\p{So}]+\])*$`)
	ownIndex   = regexp.MustCompile(`^[a-z0-9_]+_[0-9a-f]{8}$`)
	fieldPath  = regexp.MustCompile(`^([a-z_][a-z0-9_]*|custom\.[A-Za-z0-9_%-]+)$`)
	expression = regexp.MustCompile(`^\$(_id(\.[gd][0-9]*)?|[a-z][a-z0-9_]*|custom\.[A-Za-z0-9_%-]+)$`)
)

// watch checks every command that is sent to the server.
type watch struct {
	mu       sync.Mutex
	seen     map[string]int
	problems []string
}

func newWatch() *watch { return &watch{seen: map[string]int{}} }

func (w *watch) monitor() *event.CommandMonitor {
	return &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.seen[e.CommandName]++
		if err := check(e.CommandName, e.Command); err != nil && len(w.problems) < 20 {
			w.problems = append(w.problems, fmt.Sprintf("%v\n%s", err, e.Command))
		}
	}}
}

// check returns an error if the engine should not send the command.
func check(name string, command bson.Raw) error {
	collection, _ := command.Lookup(name).StringValueOK()
	filter := func(v bson.RawValue) error {
		f, ok := v.DocumentOK()
		if !ok {
			return fmt.Errorf("%s has no filter", name)
		}
		if collection == "_meta" {
			return nil
		}
		return checkFilter(f)
	}
	switch name {
	case "find":
		return filter(command.Lookup("filter"))
	case "aggregate":
		return checkPipeline(command.Lookup("pipeline"))
	case "findAndModify":
		if update, ok := command.Lookup("update").DocumentOK(); ok {
			if err := checkUpdate(update); err != nil {
				return err
			}
		}
		return filter(command.Lookup("query"))
	case "update", "delete":
		for _, each := range items(command.Lookup(name + "s")) {
			if u, ok := each.Document().Lookup("u").DocumentOK(); ok {
				if err := checkUpdate(u); err != nil {
					return err
				}
			}
			if err := filter(each.Document().Lookup("q")); err != nil {
				return err
			}
		}
		return nil
	case "insert":
		for _, each := range items(command.Lookup("documents")) {
			if collection == "_meta" {
				continue
			}
			if err := checkStored(each.Document()); err != nil {
				return err
			}
		}
		return nil
	case "distinct": // the names of all workspaces, for doctor
		if key, _ := command.Lookup("key").StringValueOK(); key != "org_id" || len(elements(command.Lookup("query").Document())) > 0 {
			return fmt.Errorf("it reads more than the names of workspaces")
		}
		return nil
	case "dropIndexes": // a single index of this package
		if name, _ := command.Lookup("index").StringValueOK(); !ownIndex.MatchString(name) {
			return fmt.Errorf("it drops an index that is not of this package")
		}
		return nil
	case "listDatabases", "createIndexes", "listIndexes", "collMod", "listCollections", "dropDatabase", "endSessions", "getMore", "killCursors":
		return nil
	}
	return fmt.Errorf("unexpected command %s", name)
}

func items(v bson.RawValue) []bson.RawValue {
	list, ok := v.ArrayOK()
	if !ok {
		return nil
	}
	values, _ := list.Values()
	return values
}

func elements(d bson.Raw) []bson.RawElement {
	all, _ := d.Elements()
	return all
}

// checkFilter requires that org_id comes first and is compared with a single string.
func checkFilter(f bson.Raw) error {
	all := elements(f)
	if len(all) == 0 || all[0].Key() != "org_id" {
		return fmt.Errorf("the filter does not begin with org_id")
	}
	eq, ok := all[0].Value().DocumentOK()
	if !ok || len(elements(eq)) != 1 || eq.Lookup("$eq").Type != bson.TypeString {
		return fmt.Errorf("org_id is not compared with a single string")
	}
	return checkCondition(f)
}

func checkCondition(d bson.Raw) error {
	for _, e := range elements(d) {
		key, value := e.Key(), e.Value()
		if key == "$and" || key == "$or" {
			for _, kid := range items(value) {
				kid, ok := kid.DocumentOK()
				if !ok {
					return fmt.Errorf("%s has an element that is not a condition", key)
				}
				if err := checkCondition(kid); err != nil {
					return err
				}
			}
			continue
		}
		operators, ok := value.DocumentOK()
		if !fieldPath.MatchString(key) || !ok {
			return fmt.Errorf("%q is not a field of a document, or its value has no operator", key)
		}
		if err := checkOperators(operators); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	return nil
}

func checkOperators(d bson.Raw) error {
	for _, o := range elements(d) {
		if !slices.Contains(filterOperators, o.Key()) {
			return fmt.Errorf("the compiler emits no %s", o.Key())
		}
		if text, ok := o.Value().StringValueOK(); o.Key() == "$regex" && (!ok || !pattern.MatchString(text)) {
			return fmt.Errorf("the compiler makes no pattern %s", text)
		}
		if inner, ok := o.Value().DocumentOK(); ok {
			if o.Key() != "$not" && o.Key() != "$elemMatch" {
				return fmt.Errorf("%s has a document as its operand", o.Key())
			}
			return checkOperators(inner)
		}
		for _, v := range items(o.Value()) {
			if v.Type == bson.TypeEmbeddedDocument || v.Type == bson.TypeArray || v.Type == bson.TypeRegex {
				return fmt.Errorf("%s has a %s in its list", o.Key(), v.Type)
			}
		}
	}
	return nil
}

func checkPipeline(v bson.RawValue) error {
	for i, s := range items(v) {
		d := elements(s.Document())
		if len(d) != 1 || !slices.Contains(stages, d[0].Key()) {
			return fmt.Errorf("the compiler does not emit stage %d", i)
		}
		var err error
		switch d[0].Key() {
		case "$match":
			if i != 0 {
				return fmt.Errorf("stage %d is a $match, want it first only", i)
			}
			err = checkFilter(d[0].Value().Document())
		default:
			if i == 0 {
				return fmt.Errorf("the first stage is not a $match")
			}
			err = checkExpression(d[0].Value())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func checkExpression(v bson.RawValue) error {
	if text, ok := v.StringValueOK(); ok && strings.HasPrefix(text, "$") && !expression.MatchString(text) {
		return fmt.Errorf("the expression reads %s", text)
	}
	for _, item := range items(v) {
		if err := checkExpression(item); err != nil {
			return err
		}
	}
	if d, ok := v.DocumentOK(); ok {
		for _, e := range elements(d) {
			if strings.HasPrefix(e.Key(), "$") && !slices.Contains(expressionOperators, e.Key()) {
				return fmt.Errorf("the compiler emits no %s", e.Key())
			}
			if err := checkExpression(e.Value()); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkUpdate requires one of the known update operators, or a complete document.
func checkUpdate(u bson.Raw) error {
	for _, e := range elements(u) {
		if !strings.HasPrefix(e.Key(), "$") {
			return checkStored(u)
		}
		if !slices.Contains(updateOperators, e.Key()) || e.Value().Type != bson.TypeEmbeddedDocument {
			return fmt.Errorf("unexpected %s in an update", e.Key())
		}
	}
	return nil
}

// checkStored requires a document whose keys cannot be taken for paths or operators.
func checkStored(d bson.Raw) error {
	for _, e := range elements(d) {
		if err := checkKeys(e); err != nil {
			return err
		}
	}
	if id, ok := d.Lookup("_id").StringValueOK(); !ok || !strings.HasPrefix(id, d.Lookup("org_id").StringValue()+"/") {
		return fmt.Errorf("the _id does not begin with the workspace")
	}
	return nil
}

func checkKeys(e bson.RawElement) error {
	if key := e.Key(); key == "" || strings.ContainsAny(key, ".$\x00") {
		return fmt.Errorf("field %q is a path or an operator", key)
	}
	if v := e.Value(); v.Type == bson.TypeEmbeddedDocument || v.Type == bson.TypeArray {
		for _, inner := range elements(bson.Raw(v.Value)) {
			if err := checkKeys(inner); err != nil {
				return err
			}
		}
	}
	return nil
}

// TestServerSeesOnlyCompiledOperators runs the conformance suite, with random queries and hostile text, and checks every
// command that is sent.
func TestServerSeesOnlyCompiledOperators(t *testing.T) {
	t.Parallel()
	for name, isolation := range map[string]mongo.Isolation{"shared": mongo.Shared, "database": mongo.PerDatabase} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mongotest.URI(t)
			w := newWatch()
			t.Run("suite", func(t *testing.T) {
				storetest.Run(t, func(t *testing.T) driver.Engine { return open(t, isolation, w.monitor()) }, mongotest.Faults(t)...)
			})
			w.mu.Lock()
			defer w.mu.Unlock()
			for _, p := range w.problems {
				t.Error(p)
			}
			for _, name := range []string{"find", "aggregate", "insert", "update", "delete", "findAndModify"} {
				if w.seen[name] == 0 {
					t.Errorf("no %s command was sent: %v", name, w.seen)
				}
			}
		})
	}
}

// TestWatchRefuses: check accepts the commands of the engine, and refuses others.
func TestWatchRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, command string
		ok            bool
	}{
		{"find", `{"find":"t","filter":{"org_id":{"$eq":"w"},"n":{"$gt":1}}}`, true},
		{"find", `{"find":"t","filter":{"n":{"$gt":1},"org_id":{"$eq":"w"}}}`, false},
		{"find", `{"find":"t","filter":{}}`, false},
		{"find", `{"find":"t","filter":{"org_id":"w"}}`, false},
		{"find", `{"find":"t","filter":{"org_id":{"$gt":""}}}`, false},
		{"find", `{"find":"t","filter":{"org_id":{"$eq":"w"},"$where":"1"}}`, false},
		{"find", `{"find":"t","filter":{"org_id":{"$eq":"w"},"n":{"$where":"1"}}}`, false},
		{"find", `{"find":"t","filter":{"org_id":{"$eq":"w"},"n":{"$eq":{"$gt":""}}}}`, false},
		{"find", `{"find":"t","filter":{"org_id":{"$eq":"w"},"n":"x"}}`, false},
		{"find", `{"find":"t","filter":{"org_id":{"$eq":"w"},"custom.a.b":{"$eq":1}}}`, false},
		{"find", `{"find":"t","filter":{"org_id":{"$eq":"w"},"$or":[{"n":{"$expr":1}}]}}`, false},
		{"find", `{"find":"t","filter":{"org_id":{"$eq":"w"},"n":{"$in":[{"$gt":""}]}}}`, false},
		{"find", `{"find":"t","filter":{"org_id":{"$eq":"w"},"n":{"$regex":"[KkK]\\.\\*\\x00[ßẞ]日1"}}}`, true},
		{"find", `{"find":"t","filter":{"org_id":{"$eq":"w"},"_id":{"$regex":"^w\\/[\\s\\S]*a"}}}`, true},
		{"find", `{"find":"t","filter":{"org_id":{"$eq":"w"},"n":{"$regex":"a.*"}}}`, false},
		{"find", `{"find":"t","filter":{"org_id":{"$eq":"w"},"n":{"$regex":"[a-z]"}}}`, false},
		{"find", `{"find":"t","filter":{"org_id":{"$eq":"w"},"n":{"$regex":"(?i)a"}}}`, false},
		{"find", `{"find":"t","filter":{"org_id":{"$eq":"w"},"n":{"$regex":{"$regularExpression":{"pattern":"a","options":""}}}}}`, false},
		{"aggregate", `{"aggregate":"t","pipeline":[{"$match":{"org_id":{"$eq":"w"}}},{"$group":{"_id":"$n","n0":{"$sum":1}}}]}`, true},
		{"aggregate", `{"aggregate":"t","pipeline":[{"$group":{"_id":"$n"}}]}`, false},
		{"aggregate", `{"aggregate":"t","pipeline":[{"$match":{"org_id":{"$eq":"w"}}},{"$lookup":{"from":"t"}}]}`, false},
		{"aggregate", `{"aggregate":"t","pipeline":[{"$match":{"org_id":{"$eq":"w"}}},{"$group":{"_id":"$$ROOT"}}]}`, false},
		{"aggregate", `{"aggregate":"t","pipeline":[{"$match":{"org_id":{"$eq":"w"}}},{"$group":{"_id":{"$function":1}}}]}`, false},
		{"delete", `{"delete":"t","deletes":[{"q":{"_id":{"$eq":"w/a"}}}]}`, false},
		{"update", `{"update":"t","updates":[{"q":{"org_id":{"$eq":"w"}},"u":{"$set":{"a":1}}}]}`, false},
		{"insert", `{"insert":"t","documents":[{"_id":"w/a","org_id":"w","custom":{"a%2Eb":1}}]}`, true},
		{"insert", `{"insert":"t","documents":[{"_id":"w/a","org_id":"w","custom":{"a.b":1}}]}`, false},
		{"insert", `{"insert":"t","documents":[{"_id":"w/a","org_id":"v"}]}`, false},
		{"dropIndexes", `{"dropIndexes":"t","index":"email_0123abcd"}`, true},
		{"dropIndexes", `{"dropIndexes":"t","index":"*"}`, false},
		{"mapReduce", `{"mapReduce":"t"}`, false},
	} {
		var command bson.Raw
		if err := bson.UnmarshalExtJSON([]byte(c.command), false, &command); err != nil {
			t.Fatalf("%s: %v", c.command, err)
		}
		if err := check(c.name, command); (err == nil) != c.ok {
			t.Errorf("check(%s) = %v, want accepted %t", c.command, err, c.ok)
		}
	}
}
