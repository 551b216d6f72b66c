package openapi

import (
	"fmt"
	"strings"
	"time"

	"tenantry/operation"
	"tenantry/tenants"
)

// generalRules describes the rules of all operations.
const generalRules = `Every organization has its own address; the first label of the host is its slug.

**Answers.** Every answer is a JSON object with exactly three members: status ("ok" or "failed"), message and data. Some failures answer with code 200, so read status, not only the code. Facts beyond the three members are in headers.

**Credentials.** Programs send an API key in the header ` + keyHeader + `; people have a browser session. A credential that is not accepted always gets the same 403, whatever the reason.

**Teams.** A request can narrow an answer to teams with teams[] in the query, or teams in a JSON body. Records without teams are visible in every scope.

**Unknown input.** Operations that take the header Prefer ignore parameters and body fields that they do not know, or that callers may not set, and name them in the header ` + ignoredHeader + `; with "Prefer: handling=strict" they are a 400 instead, and an unknown parameter with brackets always is. All other operations refuse what they do not know: a parameter with a 400, a body field with a 422. A query string or body that cannot be read is always a 400.

**Invalid input.** Input that can be read but not accepted is a 422 that lists every problem in data.errors; a value that is taken is a 409 of the same shape.`

// description returns the description of the row and the rules that follow from it.
func description(op *operation.Row) string {
	lines := []string{"- " + ruleText(op), "- " + credentialText(op)}
	if op.Rule.IsUnlimited() {
		lines[0] += " Callers who are limited to teams are refused."
	}
	if op.Body != nil {
		lines = append(lines, "- Body: at most "+byteText(op.BodyMax())+".")
	}
	if op.Upload != nil {
		lines = append(lines, "- File: at most "+byteText(op.UploadLimit)+".")
	}
	if op.Feeds != "" {
		lines = append(lines, "- Answer: it does not end; the connection is closed after an hour.")
	}
	if op.Content != nil {
		lines = append(lines, "- Answer: the bytes of a file, never compressed. The time limit does not include sending them.")
	}
	lines = append(lines, "- Time limit: "+durationText(op.Deadline())+".")
	if op.Audit == operation.AuditAlways {
		lines = append(lines, "- Audit: every call is recorded before it is answered; if the record cannot be written, the answer is a 503.")
	}
	text := strings.Join(lines, "\n")
	if op.Description != "" {
		text = strings.TrimSpace(op.Description) + "\n\n" + text
	}
	return text
}

func ruleText(op *operation.Row) string {
	permissions := op.Rule.Permissions()
	switch {
	case op.Rule.IsAdminOnly():
		return "Permission: administrators only. API keys are always refused."
	case op.Rule.ExemptsKeys():
		return "Permission: `" + string(permissions[0]) + "` for people; the API keys named below do not need it."
	case len(permissions) == 1:
		return "Permission: `" + string(permissions[0]) + "`."
	case len(permissions) > 1:
		names := make([]string, len(permissions))
		for i, p := range permissions {
			names[i] = "`" + string(p) + "`"
		}
		return "Permission: one of " + strings.Join(names, ", ") + "."
	case op.Credentials == operation.Open:
		return "Permission: none."
	}
	return "Permission: none is named; what a caller may do can depend on the record."
}

func credentialText(op *operation.Row) string {
	if op.Credentials == operation.Open {
		text := "Credentials: none."
		if op.Kinds.Admits(tenants.Browser) {
			text += " With an API key \"" + tenants.Browser.Label() + "\" pages of its origins can read the answer."
		}
		return text
	}
	var accepted []string
	for _, kind := range []tenants.KeyKind{tenants.ServerFull, tenants.ServerRead, tenants.Browser} {
		if op.Credentials&operation.Key != 0 && op.Kinds.Admits(kind) {
			accepted = append(accepted, "API key \""+kind.Label()+"\"")
		}
	}
	if op.Credentials&operation.Session != 0 {
		accepted = append(accepted, "browser session")
	}
	return "Credentials: " + strings.Join(accepted, "; ") + "."
}

func byteText(n int64) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 1<<10 && n%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d bytes", n)
}

func durationText(d time.Duration) string {
	if d%time.Second == 0 {
		return fmt.Sprintf("%d s", int64(d/time.Second))
	}
	return d.String()
}
