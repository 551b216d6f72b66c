package openapi

import (
	"reflect"
	"slices"

	"tenantry/operation"
)

// webhooks describes what is sent about records of each kind of which the event log tells.
func (b *builder) webhooks(info Info, ops []operation.Row) (object, error) {
	if info.Message == nil {
		return object{}, nil
	}
	headers := []any{
		sentHeader("webhook-id", "Identifier of the event, the same at each try.", "k3f4x2m7qa-1043"),
		sentHeader("webhook-timestamp", "When the try was made, in Unix seconds.", "1795341600"),
		sentHeader("webhook-signature", "Signatures of the message, as Standard Webhooks describes them, separated by blanks.",
			"v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
	}
	answers := object{
		{"2XX", object{{"description", "The event is delivered."}}},
		{"410", object{{"description", "The receiver wants no more events: the webhook is paused."}}},
		{"default", object{{"description", "The event is sent again later; after Retry-After, if the answer has it."}}},
	}
	all := map[string]object{}
	for i := range ops {
		op := &ops[i]
		if op.Logged == nil {
			continue
		}
		kind := op.Logged.Resource
		example := info.Message(kind)
		schema, err := b.schemas.of(reflect.TypeOf(example))
		if err != nil {
			return nil, err
		}
		all[kind] = object{{"post", object{
			{"operationId", "on" + pascalCase(kind)}, {"tags", []string{op.Tag}},
			{"summary", "What happened to a " + kind},
			{"description", "Sent to the webhooks that ask for it, if their service account may read the record. The answer is read to " +
				"64 KB and at most 15 seconds are waited for it."},
			{"parameters", slices.Clone(headers)},
			{"requestBody", object{{"required", true}, {"content", object{
				{"application/json", object{{"schema", schema}, {"example", example}}},
			}}}},
			{"responses", answers}, {"security", []any{}},
		}}}
	}
	return sorted(all), nil
}

func sentHeader(name, description, example string) object {
	return object{
		{"name", name}, {"in", "header"}, {"required", true}, {"description", description},
		{"schema", object{{"type", "string"}}}, {"example", example},
	}
}
