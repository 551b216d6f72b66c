package forms

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"tenantry/backends/record/schema"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
)

// Alerts is the configuration of a form's e-mail alerts. alertMembers have a meaning; other members are stored
// unchanged. Numbers are json.Number.
type Alerts map[string]any

// alertMembers declares the members of Alerts that have a meaning.
type alertMembers struct {
	Enabled    bool     `json:"enabled" ask:"Send alerts"`
	Recipients []string `json:"recipients" ask:"Recipients|E-mail addresses, at most 1,000."`
	Subject    string   `json:"subject" rule:"max=200" ask:"Subject|Without one, the subject names the form."`
	ReplyTo    string   `json:"reply_to_field" ask:"Answers go to|The field with the e-mail address of whoever filled in the form.|key"`
	Fields     []string `json:"fields" ask:"Values in the mail|Without any, the mail only links to the submission.|key"`
}

// Declared implements operation.Declarer.
func (Alerts) Declared() any { return alertMembers{} }

// UnmarshalJSON keeps numbers exact.
func (a *Alerts) UnmarshalJSON(text []byte) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var m map[string]any
	if err := dec.Decode(&m); err != nil {
		return fmt.Errorf("e-mail alerts: %w", err)
	}
	*a = m
	return nil
}

// ReadValue reads a configuration and checks it.
func (a *Alerts) ReadValue(name string, v strictjson.Value, errs *fault.List) {
	if v.Is != strictjson.Object {
		errs.Add(name, fault.Type, "%s must be an object", name)
		return
	}
	*a = v.Table()
	a.Check(errs, name)
}

// Limits of an alert configuration.
const (
	MaxRecipients  = 1000
	maxAlertsBytes = 128 << 10
	maxAlertsDepth = 8
	maxSubject     = 200 // characters
)

// Check notes every fault of the configuration in errs under path.
func (a Alerts) Check(errs *fault.List, path string) {
	text, err := json.Marshal(a)
	if err != nil || len(text) > maxAlertsBytes {
		errs.Add(path, "length", "%s must have at most %d bytes", path, maxAlertsBytes)
		return
	}
	if depth(map[string]any(a)) > maxAlertsDepth {
		errs.Add(path, "length", "%s must nest at most %d levels", path, maxAlertsDepth)
	}
	if v, ok := a["enabled"]; ok {
		if _, ok := v.(bool); !ok {
			errs.Add(path+".enabled", "type", "%s.enabled must be true or false", path)
		}
	}
	if v, ok := a["subject"]; ok {
		checkSubject(errs, path+".subject", v)
	}
	if v, ok := a["recipients"]; ok {
		checkRecipients(errs, path+".recipients", v)
	}
}

func checkSubject(errs *fault.List, at string, value any) {
	s, ok := value.(string)
	switch {
	case !ok:
		errs.Add(at, "type", "%s must be a string", at)
	case utf8.RuneCountInString(s) > maxSubject:
		errs.Add(at, "length", "%s must have at most %d characters", at, maxSubject)
	case strings.ContainsFunc(s, unicode.IsControl): // a line break would start another header
		errs.Add(at, "format", "%s must be one line without control characters", at)
	}
}

func checkRecipients(errs *fault.List, at string, value any) {
	list, ok := value.([]any)
	if !ok {
		errs.Add(at, "type", "%s must be a list of e-mail addresses", at)
		return
	}
	if len(list) > MaxRecipients {
		errs.Add(at, "length", "%s must have at most %d addresses", at, MaxRecipients)
		return
	}
	for i, v := range list {
		if s, ok := v.(string); !ok || !schema.ValidEmail(s) {
			item := fmt.Sprintf("%s[%d]", at, i)
			errs.Add(item, "format", "%s must be an e-mail address", item)
		}
	}
}

func depth(v any) int {
	most := 0
	switch x := v.(type) {
	case map[string]any:
		for _, kid := range x {
			most = max(most, depth(kid))
		}
	case []any:
		for _, kid := range x {
			most = max(most, depth(kid))
		}
	default:
		return 0
	}
	return most + 1
}
