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

// Names of the components for the envelopes of failures that operations share.
const (
	failedSchema     = "Failed"
	validationSchema = "FailedValidation"
)

// sharedAnswers returns the answers that any operation can give, besides the failures of its row.
func sharedAnswers() map[int]*answer {
	answers := map[int]*answer{
		http.StatusNotModified: {name: "NotModified", description: []string{
			"The caller already has this answer, according to If-None-Match."}, headers: []string{tagHeader}},
		http.StatusBadRequest: {name: "BadRequest", description: []string{
			"The query string or body cannot be read, or the caller asked for strict handling and sent input that would be ignored."}},
		http.StatusForbidden: {name: "Denied", description: []string{
			"The credential is not accepted here; the answer is the same whatever the reason. Or a page of another site sent the request."}},
		http.StatusConflict: {name: "Conflict", description: []string{
			"A value that must be unique is taken, or the record was changed in the meantime."}},
		http.StatusPreconditionFailed: {name: "Stale", description: []string{
			"The record has another revision than If-Match names. Nothing was done."}},
		http.StatusRequestEntityTooLarge: {name: "ContentTooLarge", description: []string{"The body is larger than the operation takes."}},
		http.StatusUnsupportedMediaType: {name: "UnsupportedMediaType", description: []string{
			"The content type of the body is not application/json, or it has a content encoding."}},
		http.StatusUnprocessableEntity: {name: "Invalid", description: []string{
			"Input can be read but not accepted. Every problem is listed."}},
		http.StatusTooManyRequests: {name: "TooManyRequests", description: []string{
			"A request limit of the organization or of the caller is used up. The request was not counted."}, headers: []string{retryAfterHeader}},
		http.StatusInsufficientStorage: {name: "Full", description: []string{
			"The organization stores as many documents or bytes as it may. Nothing was stored; deleting records for good makes room."}},
		http.StatusInternalServerError: {name: "InternalError", description: []string{"A fault of the service."}},
		http.StatusServiceUnavailable: {name: "Unavailable", description: []string{
			"The service, or something it depends on, is down at the moment."}, headers: []string{retryAfterHeader}},
	}
	_, parseErr := operation.ParseBody([]byte(`{"name": "A", "name": "B"}`))
	for _, err := range []error{
		parseErr, operation.Denied(""), operation.Duplicate("name"), store.ErrConflict,
		fault.One("name", "required", "%s is required", "name"), operation.Internal(nil), operation.Unavailable(nil),
		&operation.Problem{Code: http.StatusRequestEntityTooLarge}, &operation.Problem{Code: http.StatusUnsupportedMediaType},
		operation.TooManyRequests(0), operation.Stale(),
		&store.QuotaError{Limit: tenants.LimitDocuments, Used: 100_000, Allowed: 100_000},
	} {
		problem := operation.ProblemOf(err)
		a := answers[problem.Code]
		a.samples = append(a.samples, sample{problem: *problem})
	}
	return answers
}

// sharedResponses makes the components for shared answers and their envelopes.
func (b *builder) sharedResponses() error {
	data, err := b.schemas.of(reflect.TypeOf(validationData()))
	if err != nil {
		return err
	}
	b.schemas.components[failedSchema] = envelope(operation.StatusFailed, emptyList())
	b.schemas.components[validationSchema] = envelope(operation.StatusFailed, data)
	for _, a := range sharedAnswers() {
		if err := b.addSamples(a); err != nil {
			return err
		}
		if err := b.nameAlternatives(a, a.name); err != nil {
			return err
		}
		b.components[a.name] = a.response()
	}
	return nil
}

// validationData is an example of the data of a validation error.
func validationData() any { return operation.ProblemOf(fault.One("", "", "")).Data }

// responses returns the answers of the operation, by status code.
func (b *builder) responses(op *operation.Row) (object, error) {
	answers := sharedAnswers()
	maps.DeleteFunc(answers, func(code int, _ *answer) bool { return !canHappen(op, code) })
	own := slices.Clone(op.Failures)
	own = addRefusal(op, answers[http.StatusForbidden], own)
	if op.Failure != nil {
		answers = applyFailureHook(op, answers)
	}
	failedOK := &answer{}
	answers[op.Success()] = failedOK
	if op.Content != nil {
		addContent(op, answers)
	}
	for _, f := range own {
		if f.Code != http.StatusOK && (f.Code < 400 || f.Code > 599) {
			return nil, fmt.Errorf("the failure %q has the code %d", f.Message, f.Code)
		}
		answerFor(answers, f.Code).add(f)
	}
	delete(answers, op.Success())

	ok, err := b.okResponse(op, failedOK)
	if err != nil {
		return nil, err
	}
	all := object{{strconv.Itoa(op.Success()), ok}}
	for _, code := range slices.Sorted(maps.Keys(answers)) {
		a := answers[code]
		if err := b.addSamples(a); err != nil {
			return nil, fmt.Errorf("the answer %d: %w", code, err)
		}
		base := cmp.Or(a.name, pascalCase(op.ID(0))+strconv.Itoa(code))
		if err := b.nameAlternatives(a, base); err != nil {
			return nil, err
		}
		if a.name == "" && len(a.schemas) > 1 {
			either, err := b.asComponent(base, anyOf(a.schemas))
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

// answerFor returns the answer with the code, which it adds if it is missing.
func answerFor(answers map[int]*answer, code int) *answer {
	if answers[code] == nil {
		answers[code] = &answer{}
	}
	return answers[code]
}

// add adds a failure of the row. The answer then belongs to this operation, and is not a component.
func (a *answer) add(f operation.Failure) {
	a.name = ""
	when := f.When
	if when == "" {
		when = f.Message
	}
	if f.Code == http.StatusUnprocessableEntity && f.Data == nil {
		// The row has no example, but the answer lists the problems.
		a.samples = append(a.samples, sample{
			problem: operation.Problem{Code: f.Code, Data: validationData()}, when: when,
		})
		return
	}
	if f.Code == http.StatusConflict || f.Code == http.StatusUnprocessableEntity {
		for i := range a.samples {
			if a.samples[i].when == "" {
				a.samples[i].problem.Message = "" // the example of the row names fields of the row
			}
		}
	}
	a.samples = append(a.samples, sample{
		problem: operation.Problem{Code: f.Code, Message: f.Message, Data: f.Data}, when: when,
	})
}

// canHappen reports whether the pipeline before the handler, or a handler of such a row, can answer with the code.
func canHappen(op *operation.Row, code int) bool {
	switch code {
	case http.StatusNotModified:
		return op.Revised && op.Method == http.MethodGet || op.Content != nil
	case http.StatusPreconditionFailed:
		return op.Conditional()
	case http.StatusConflict:
		return op.Method != http.MethodGet
	case http.StatusInsufficientStorage:
		return op.Method != http.MethodGet && op.Method != http.MethodDelete
	case http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType:
		return op.Body != nil || op.Upload != nil
	case http.StatusUnprocessableEntity:
		inQuery := func(p operation.Param) bool { return p.In == operation.InQuery }
		return op.ReadsBody() || op.Repeatable() || slices.ContainsFunc(op.Params, inQuery)
	}
	return true
}

// addRefusal adds the answer of the rule to a caller without permissions. It returns the failures without the one that
// describes the same answer.
func addRefusal(op *operation.Row, into *answer, own []operation.Failure) []operation.Failure {
	var problem *operation.Problem
	if !errors.As(op.Rule.Check(&tenants.Principal{}, nil), &problem) || problem.Data == nil {
		return own
	}
	refusal := sample{problem: *problem, when: "The caller does not hold the permission.", exact: true}
	into.name = pascalCase("Denied " + slug(strings.TrimPrefix(problem.Message, operation.MissingPermission("").Message)))
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

// applyFailureHook returns the answers as the Failure hook of the row changes them.
func applyFailureHook(op *operation.Row, answers map[int]*answer) map[int]*answer {
	changed := map[int]*answer{}
	for _, code := range slices.Sorted(maps.Keys(answers)) {
		a := answers[code]
		if len(a.samples) == 0 { // it is not a failure
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
			// Refusals by a request limit and outages of the audit log bypass the hook.
			bypasses := code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable && op.Audit != operation.NoAudit
			if !reflect.DeepEqual(*after, s.problem) {
				into.name = ""
				if bypasses {
					into.samples = append(into.samples, s)
				}
			}
			into.samples = append(into.samples, sample{problem: *after, when: s.when, exact: s.exact})
		}
	}
	return changed
}

// addContent adds the answers that only contents have, besides the whole content.
func addContent(op *operation.Row, answers map[int]*answer) {
	part := contents(op)
	part.describe("The ranges of the content that Range names")
	part.content = append(part.content, member{"multipart/byteranges", object{{"schema", binary()}}})
	answers[http.StatusPartialContent] = part
	for code, when := range map[int]string{
		http.StatusPreconditionFailed:           "The content is not the one that If-Match or If-Unmodified-Since names.",
		http.StatusRequestedRangeNotSatisfiable: "Range names no bytes of the content. Content-Range tells its size.",
	} {
		refusal := operation.Refusal(code, "", "", "")
		answers[code] = &answer{samples: []sample{{problem: *refusal, when: when}}, uncounted: op.OwnLimits}
	}
}

// contents describes bytes, by media type.
func contents(op *operation.Row) *answer {
	a := &answer{uncounted: op.OwnLimits, schemas: []object{binary()}, headers: []string{tagHeader}}
	for _, media := range op.Content {
		a.content = append(a.content, member{media, object{{"schema", binary()}}})
	}
	return a
}

// okResponse describes the code of a success: the success, and failures with the same code.
func (b *builder) okResponse(op *operation.Row, failed *answer) (object, error) {
	if op.Content != nil {
		a := contents(op)
		a.describe("Success: the content")
		return a.response(), nil
	}
	if op.Feeds != "" {
		text := object{{"type", "string"}}
		a := &answer{uncounted: op.OwnLimits, schemas: []object{text}, content: []member{{op.Feeds, object{{"schema", text}}}}}
		a.describe("Success: what happens, until the connection is closed")
		return a.response(), nil
	}
	if op.Success() == http.StatusNoContent {
		a := &answer{uncounted: op.OwnLimits}
		a.describe("Success, without a body: " + cmp.Or(op.Message, op.Summary))
		return a.response(), nil
	}
	t := reflect.TypeOf(op.Data)
	if t.Kind() == reflect.Pointer {
		t = t.Elem() // the pointer only carries the type: data is not null
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
		a.describe("Success: rows, one on each line. " +
			"An answer that was read to its end is complete, because a failure closes the connection early")
		a.content, err = streams(op, data)
		return a.response(), err
	}
	a.describe("Success: " + op.Message)
	if op.Example != nil {
		success := operation.Envelope{Status: operation.StatusOK, Message: op.Message, Data: op.Example}
		if err := a.addExample("Success", success); err != nil {
			return nil, fmt.Errorf("its example: %w", err)
		}
	}
	if len(failed.samples) > 0 {
		if err := b.addSamples(failed); err != nil {
			return nil, err
		}
		a.describe(`Or a failure, with status "failed": ` + strings.Join(failed.description, " "))
		// oneOf, because status distinguishes success from failure.
		name := pascalCase(op.ID(0))
		if err := b.nameAlternatives(failed, name); err != nil {
			return nil, err
		}
		success, err := b.asComponent(name+"Success", a.schemas[0])
		if err != nil {
			return nil, err
		}
		failure, err := b.asComponent(name+"Failed", anyOf(failed.schemas))
		if err != nil {
			return nil, err
		}
		either, err := b.asComponent(name+"Answer", object{{"oneOf", []object{success, failure}}})
		if err != nil {
			return nil, err
		}
		a.schemas = []object{either}
		a.examples = append(a.examples, failed.examples...)
	}
	return a.response(), nil
}

// streams describes streamed rows, by media type. Generators treat them as text; x-row is the schema of one row.
func streams(op *operation.Row, row object) (content object, err error) {
	for _, media := range op.Streams {
		described := object{{"schema", object{{"type", "string"}}}}
		if media == operation.NDJSON {
			var text []byte
			text, err = encode(op.Example)
			examples := object{{"rows", object{{"value", string(text) + "\n"}}}}
			described = append(described, member{"x-row", row}, member{"examples", examples})
		}
		content = append(content, member{media, described})
	}
	return content, err
}
