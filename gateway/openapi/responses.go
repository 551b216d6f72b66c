package openapi

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/operation"
	"tenantry/tenants"
)

// The envelopes of failures that operations share, as components.
const (
	failedSchema     = "Failed"
	validationSchema = "FailedValidation"
)

// sharedAnswers returns what every operation can answer beside its row's failures.
func sharedAnswers() map[int]*answer {
	answers := map[int]*answer{
		http.StatusNotModified: {name: "NotModified", description: []string{"The caller has this answer already, by If-None-Match."}, headers: []string{tagHeader}},
		http.StatusBadRequest: {name: "BadRequest", description: []string{
			"The query string or body cannot be read, or the caller asked for strict handling and sent input that would be ignored."}},
		http.StatusForbidden: {name: "Denied", description: []string{
			"The credential is not accepted here; the answer is the same whatever the reason. Or a page of another site sent the request."}},
		http.StatusConflict:              {name: "Conflict", description: []string{"A value that must be unique is taken, or the record was changed meanwhile."}},
		http.StatusPreconditionFailed:    {name: "Stale", description: []string{"The record has another revision than If-Match names. Nothing was done."}},
		http.StatusRequestEntityTooLarge: {name: "ContentTooLarge", description: []string{"The body is larger than the operation takes."}},
		http.StatusUnsupportedMediaType:  {name: "UnsupportedMediaType", description: []string{"The body is not announced as application/json, or has a content encoding."}},
		http.StatusUnprocessableEntity:   {name: "Invalid", description: []string{"Input can be read but not accepted. Every problem is listed."}},
		http.StatusTooManyRequests: {name: "TooManyRequests", description: []string{
			"A limit on requests is used up, the organization's or the caller's. The request was not counted."}, headers: []string{retryAfterHeader}},
		http.StatusInsufficientStorage: {name: "Full", description: []string{
			"The organization has as much as it may store, of documents or of bytes. Nothing was stored; what is deleted for good makes room."}},
		http.StatusInternalServerError: {name: "InternalError", description: []string{"A fault of the service."}},
		http.StatusServiceUnavailable: {name: "Unavailable", description: []string{
			"The service, or something it needs, is down for the moment."}, headers: []string{retryAfterHeader}},
	}
	_, unreadable := operation.ParseBody([]byte(`{"name": "A", "name": "B"}`))
	for _, err := range []error{
		unreadable, operation.Denied(""), operation.Duplicate("name"), store.ErrConflict,
		fault.One("name", "required", "%s is required", "name"), operation.Internal(nil), operation.Unavailable(nil),
		&operation.Problem{Code: http.StatusRequestEntityTooLarge}, &operation.Problem{Code: http.StatusUnsupportedMediaType},
		operation.TooManyRequests(0), operation.Stale(), &store.QuotaError{Limit: tenants.LimitDocuments, Used: 100_000, Allowed: 100_000},
	} {
		problem := operation.ProblemOf(err)
		into := answers[problem.Code]
		into.samples = append(into.samples, sample{problem: *problem})
	}
	return answers
}

// sharedResponses makes the components for the answers that operations share, and the
// schemas of their envelopes.
func (b *builder) sharedResponses() error {
	data, err := b.schemas.of(reflect.TypeOf(validationData()))
	if err != nil {
		return err
	}
	b.schemas.components[failedSchema] = envelope(operation.StatusFailed, emptyList())
	b.schemas.components[validationSchema] = envelope(operation.StatusFailed, data)
	for _, a := range sharedAnswers() {
		if err := b.settle(a); err != nil {
			return err
		}
		if err := b.nameSides(a, a.name); err != nil {
			return err
		}
		b.components[a.name] = a.response()
	}
	return nil
}

// validationData is the data of an answer that lists problems of the input.
func validationData() any { return operation.ProblemOf(fault.One("", "", "")).Data }

// responses returns the answers of the operation by status code.
func (b *builder) responses(op *operation.Row) (object, error) {
	answers := sharedAnswers()
	maps.DeleteFunc(answers, func(code int, _ *answer) bool { return !canHappen(op, code) })
	own := slices.Clone(op.Failures)
	own = addRefusal(op, answers[http.StatusForbidden], own)
	if op.Failure != nil {
		answers = lastWord(op, answers)
	}
	failedOK := &answer{}
	answers[http.StatusOK] = failedOK
	for _, f := range own {
		if f.Code != http.StatusOK && (f.Code < 400 || f.Code > 599) {
			return nil, fmt.Errorf("the failure %q has the code %d", f.Message, f.Code)
		}
		at(answers, f.Code).add(f)
	}
	delete(answers, http.StatusOK)

	ok, err := b.okResponse(op, failedOK)
	if err != nil {
		return nil, err
	}
	all := object{{"200", ok}}
	for _, code := range slices.Sorted(maps.Keys(answers)) {
		a := answers[code]
		if err := b.settle(a); err != nil {
			return nil, fmt.Errorf("the answer %d: %w", code, err)
		}
		base := cmp.Or(a.name, pascal(op.ID(0))+strconv.Itoa(code))
		if err := b.nameSides(a, base); err != nil {
			return nil, err
		}
		if a.name == "" && len(a.schemas) > 1 {
			either, err := b.named(base, anyOf(a.schemas))
			if err != nil {
				return nil, err
			}
			a.schemas = []object{either}
		}
		response := a.response()
		if a.name != "" {
			b.components[a.name] = response
			response = object{{"$ref", "#/components/responses/" + a.name}}
		}
		all = append(all, member{strconv.Itoa(code), response})
	}
	return all, nil
}

// at returns the answer with that code, a new one where there is none.
func at(answers map[int]*answer, code int) *answer {
	if answers[code] == nil {
		answers[code] = &answer{}
	}
	return answers[code]
}

// add adds a row's own failure. The answer is then this operation's, no component.
func (a *answer) add(f operation.Failure) {
	a.name = ""
	when := f.When
	if when == "" {
		when = f.Message
	}
	if f.Code == http.StatusUnprocessableEntity && f.Data == nil {
		// The answer lists the problems, although the row shows none.
		a.samples = append(a.samples, sample{problem: operation.Problem{Code: f.Code, Data: validationData()}, when: when})
		return
	}
	if f.Code == http.StatusConflict || f.Code == http.StatusUnprocessableEntity {
		for i := range a.samples {
			if a.samples[i].when == "" {
				a.samples[i].problem.Message = "" // the row's own example names its own fields
			}
		}
	}
	a.samples = append(a.samples, sample{problem: operation.Problem{Code: f.Code, Message: f.Message, Data: f.Data}, when: when})
}

// canHappen reports whether the pipeline in front of the handler, or a handler of that
// kind, can answer with the code.
func canHappen(op *operation.Row, code int) bool {
	switch code {
	case http.StatusNotModified:
		return op.Revised && op.Method == http.MethodGet
	case http.StatusPreconditionFailed:
		return op.Conditional()
	case http.StatusConflict:
		return op.Method != http.MethodGet
	case http.StatusInsufficientStorage:
		return op.Method != http.MethodGet && op.Method != http.MethodDelete
	case http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType:
		return op.Body != nil || op.Upload != nil
	case http.StatusUnprocessableEntity:
		return op.ReadsBody() || op.Repeatable() || slices.ContainsFunc(op.Params, func(p operation.Param) bool { return p.In == operation.InQuery })
	}
	return true
}

// addRefusal adds what the row's rule answers to a caller who holds nothing, and returns
// the failures without the one that describes the same.
func addRefusal(op *operation.Row, into *answer, own []operation.Failure) []operation.Failure {
	var problem *operation.Problem
	if !errors.As(op.Rule.Check(&tenants.Principal{}, nil), &problem) || problem.Data == nil {
		return own
	}
	refusal := sample{problem: *problem, when: "The caller does not hold the permission.", exact: true}
	into.name = pascal("Denied " + slug(strings.TrimPrefix(problem.Message, operation.MissingPermission("").Message)))
	rest := slices.DeleteFunc(own, func(f operation.Failure) bool {
		if f.Code != problem.Code || f.Message != problem.Message {
			return false
		}
		if f.When != "" {
			refusal.when, into.name = f.When, ""
		}
		return true
	})
	into.samples = append(into.samples, refusal)
	return rest
}

// lastWord returns the answers as the row's Failure changes them.
func lastWord(op *operation.Row, answers map[int]*answer) map[int]*answer {
	changed := map[int]*answer{}
	for _, code := range slices.Sorted(maps.Keys(answers)) {
		a := answers[code]
		if len(a.samples) == 0 { // no failure
			changed[code] = a
		}
		for _, s := range a.samples {
			before := s.problem
			after := op.Failure(&before)
			if after == nil {
				after = &s.problem
			}
			into := changed[after.Code]
			if into == nil {
				into = &answer{name: a.name, description: a.description, headers: a.headers}
				changed[after.Code] = into
			}
			// A refusal by the rate limit and the audit log's outage do not pass the row.
			outside := code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable && op.Audit != operation.NoAudit
			if !reflect.DeepEqual(*after, s.problem) {
				into.name = ""
				if outside {
					into.samples = append(into.samples, s)
				}
			}
			into.samples = append(into.samples, sample{problem: *after, when: s.when, exact: s.exact})
		}
	}
	return changed
}

// okResponse describes code 200: the success and, where there are any, the failures that
// answer with the same code.
func (b *builder) okResponse(op *operation.Row, failed *answer) (object, error) {
	t := reflect.TypeOf(op.Data)
	if t.Kind() == reflect.Pointer {
		t = t.Elem() // a value to show the type; data is not null
	}
	data, err := b.schemas.of(t)
	if err != nil {
		return nil, fmt.Errorf("its data: %w", err)
	}
	a := &answer{uncounted: op.OwnLimits, schemas: []object{envelope(operation.StatusOK, data)}}
	if op.Contract {
		a.headers = []string{ignoredHeader}
	}
	if op.Revised {
		a.headers = append(a.headers, tagHeader)
	}
	if op.Repeatable() {
		a.headers = append(a.headers, replayedHeader)
	}
	if op.Streams != nil {
		a.describe("Success: rows, one in each line. Who has read to the end of the answer has all of them: a failure cuts the connection off")
		a.content, err = streams(op, data)
		return a.response(), err
	}
	a.describe("Success: " + op.Message)
	if op.Example != nil {
		if err := a.addExample("Success", operation.Envelope{Status: operation.StatusOK, Message: op.Message, Data: op.Example}); err != nil {
			return nil, fmt.Errorf("its example: %w", err)
		}
	}
	if len(failed.samples) > 0 {
		if err := b.settle(failed); err != nil {
			return nil, err
		}
		a.describe(`Or a failure, with status "failed": ` + strings.Join(failed.description, " "))
		// Status tells success from failure, so exactly one of the two sides holds.
		name := pascal(op.ID(0))
		if err := b.nameSides(failed, name); err != nil {
			return nil, err
		}
		success, err := b.named(name+"Success", a.schemas[0])
		if err != nil {
			return nil, err
		}
		failure, err := b.named(name+"Failed", anyOf(failed.schemas))
		if err != nil {
			return nil, err
		}
		either, err := b.named(name+"Answer", object{{"oneOf", []object{success, failure}}})
		if err != nil {
			return nil, err
		}
		a.schemas = []object{either}
		a.examples = append(a.examples, failed.examples...)
	}
	return a.response(), nil
}

// streams describes rows by media type: generators make a text of them, and x-row is the schema of one.
func streams(op *operation.Row, row object) (content object, err error) {
	for _, media := range op.Streams {
		described := object{{"schema", object{{"type", "string"}}}}
		if media == operation.NDJSON {
			var text []byte
			text, err = encode(op.Example)
			described = append(described, member{"x-row", row}, member{"examples", object{{"rows", object{{"value", string(text) + "\n"}}}}})
		}
		content = append(content, member{media, described})
	}
	return content, err
}
