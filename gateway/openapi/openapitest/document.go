package openapitest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

// ValidateDocument fails the test for every fault of the document.
func (v *Validator) ValidateDocument(t testing.TB) {
	t.Helper()
	for _, fault := range v.CheckDocument() {
		t.Errorf("OpenAPI document: %v", fault)
	}
}

// CheckDocument returns the faults of the document: violations of OpenAPI 3.1 and those that kin-openapi finds, such as
// dangling references, invalid schemas, and examples and defaults that violate their schema. It also reports what
// OpenAPI leaves optional but client generators need.
func (v *Validator) CheckDocument() []error {
	doc, err := openapi3.NewLoader().LoadFromData(v.text)
	if err != nil {
		return []error{err}
	}
	var faults []error
	if !doc.IsOpenAPI31OrLater() {
		faults = append(faults, fmt.Errorf("openapi is %q, not 3.1", doc.OpenAPI))
	}
	if err := doc.Validate(context.Background(), openapi3.EnableMultiError(), openapi3.EnableExamplesValidation(),
		openapi3.EnableSchemaDefaultsValidation(), openapi3.EnableSchemaFormatValidation()); err != nil {
		faults = append(faults, err)
	}
	headers := maps.Clone(doc.Components.Headers)
	for path, item := range doc.Paths.Map() {
		for method, operation := range item.Operations() {
			at := method + " " + path
			if operation.OperationID == "" {
				faults = append(faults, errors.New(at+": operationId is missing"))
			}
			for _, tag := range operation.Tags {
				if doc.Tags.Get(tag) == nil {
					faults = append(faults, fmt.Errorf("%s: the tag %s is not declared", at, tag))
				}
			}
			for code, response := range operation.Responses.Map() {
				for name, header := range response.Value.Headers {
					headers[at+" "+code+" "+name] = header
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		if h := headers[name].Value; h.Example != nil {
			if err := h.Schema.Value.VisitJSON(h.Example); err != nil {
				faults = append(faults, fmt.Errorf("the example of the header %s: %w", name, err))
			}
		}
	}
	return faults
}
