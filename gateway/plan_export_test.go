package gateway

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"tenantry/internal/rate"
	"tenantry/modules/imports/bundle"
	"tenantry/reports"
	"tenantry/tenants"
)

// notExported returns the stored kinds and fields that no export has, with the reasons. A name is that of a kind, or of
// a kind and a field.
func notExported() map[string]string {
	const (
		control  = "it says where this installation stores the organization"
		password = "passwords and links never leave the server"
		announce = "it invalidates caches of this installation"
		token    = "tokens are signed with a key that is not exported, so they are valid only here"
	)
	out := map[string]string{
		"keys":                  "keys are not exported",
		"noted_rights":          "it records what people did here",
		"installations":         "it belongs to the installation",
		"chores":                "they belong to the installation",
		"audit_log":             "the audit log is not exported",
		"audit_seals":           "they belong to the audit log",
		"audit_leaves":          "they belong to the audit log",
		"audit_tiles":           "they belong to the audit log",
		"audit_heads":           "they belong to the audit log",
		"usage":                 "it belongs to the past of this organization",
		"imports":               "the imported records are exported themselves",
		"kept_answers":          "they answer repeated requests here",
		"blobs":                 "they say where the bytes of files are here",
		"storage":               "it sums up the blobs",
		"attachments":           "they wait for a submission here",
		"form_submissions.once": "it answers repeated requests here",

		"form_collections.alerts_blind": "whoever imports a form sets its alerts",
		"transfers":                     "they are uploads under way here",
		"file_versions":                 "they are the history of the files of this organization",
		"mails":                         "they belong to the past of this organization",
		"sign_in_places":                "it records where people signed in here",
		"webhook_progress":              "it says what was sent from here",
		"webhook_deliveries":            "they note what was sent from here",
		"webhooks.signing":              "secrets are derived from a key that is not exported",
		"webhooks.former":               "secrets are derived from a key that is not exported",
		"webhooks.former_until":         "secrets are derived from a key that is not exported",
		"webhooks.begin":                "it is a position in the event log, which is not exported",
		"share_revocations":             token,

		"report_schedule_progress": "it says what was sent from here",
		"report_runs":              "they note what was sent from here",
		"report_contents":          "they are part of mails that wait here",
		"report_schedules.since":   "an imported schedule waits until it is resumed",
		"shares":                   token,
		"organizations.leaving":    "it is temporary",
		"organizations.ending":     "an exported organization is not deleted",
		"organizations.lowered":    "it depends on what the operator allows here",
	}
	for reason, names := range map[string]string{
		control:  "organizations.slug organizations.org_id organizations.state organizations.backend organizations.copy_of organizations.event_log organizations.sends organizations.sends_since organizations.due_at organizations.due_since organizations.edited organizations.restores organizations.restored_at organizations.former organizations.finisher organizations.move",
		announce: "organizations.access_rev",
		"it is wrapped under this installation's keyring": "organizations.data_keys",
		password:                               "users.password_hash users.password_rev users.password_changed_at users.invite_hash users.invite_expires_at users.invite_held",
		"sessions are not part of an export":   "users.signed_out users.sessions_from",
		"it refers to the organization itself": "users.org_id roles.org_id teams.org_id accounts.org_id",
		"it is derived":                        "users.email_key compliance_settings.key",
		"the store stamps it; nothing shows it": "organizations.created_at organizations.updated_at users.updated_at roles.updated_at " +
			"contact_fields.updated_at compliance_settings.created_at compliance_settings.updated_at",
	} {
		for _, name := range strings.Fields(names) {
			out[name] = reason
		}
	}
	return out
}

// marker fills records with values that can be found in an export.
type marker struct {
	n    int64
	want map[string]string // text that the export must hold, by kind and field
}

func (m *marker) fill(v reflect.Value, at string) {
	m.n++
	word := fmt.Sprintf("mark%d", m.n)
	switch x := v.Addr().Interface().(type) {
	case *rate.Limit:
		if err := x.UnmarshalText(fmt.Appendf(nil, "%d/s", 900_000+m.n)); err != nil {
			panic(err)
		}
		m.want[at] = x.String()
		return
	case *json.RawMessage:
		*x, m.want[at] = json.RawMessage(`{"`+word+`":1}`), word
		return
	case *[]tenants.Permission: // unknown permissions are not exported
		*x, m.want[at] = []tenants.Permission{tenants.Contacts}, `"`+at[strings.LastIndexByte(at, '.')+1:]+`":["contacts"]`
		return
	case *[]string:
		if at == "users.roles" { // nor are unknown roles
			*x, m.want[at] = []string{"admin"}, `"roles":["admin"]`
			return
		}
	case *reports.Query:
		m.want[at] = word
		if err := json.Unmarshal([]byte(`{"fields":["`+word+`"]}`), x); err != nil {
			panic(err)
		}
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(word)
		m.want[at] = `"` + word + `"`
	case reflect.Int:
		v.SetInt(m.n)
		m.want[at] = fmt.Sprint(m.n)
	case reflect.Int64:
		v.SetInt(1_500_000_000_000 + m.n*1000)
		m.want[at] = fmt.Sprint(v.Int())
		if strings.HasSuffix(at, "_at") {
			m.want[at] = time.UnixMilli(v.Int()).UTC().Format("2006-01-02T15:04:05.000Z")
		}
	case reflect.Bool:
		v.SetBool(true)
		m.want[at] = `"` + at[strings.LastIndexByte(at, '.')+1:] + `":true`
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		m.fill(v.Elem(), at)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes([]byte(word))
			m.want[at] = base64.StdEncoding.EncodeToString(v.Bytes())
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		m.fill(v.Index(0), at)
	case reflect.Interface:
		v.Set(reflect.ValueOf(word))
		m.want[at] = word
	case reflect.Map:
		value := reflect.New(v.Type().Elem()).Elem()
		m.fill(value, at+"."+word)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf(word), value)
		m.want[at] = word
	case reflect.Struct:
		for _, f := range reflect.VisibleFields(v.Type()) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if f.Anonymous || !f.IsExported() || name == "-" {
				continue
			}
			m.fill(v.FieldByIndex(f.Index), at+"."+name)
		}
	default:
		panic(at + ": a type that the test cannot fill")
	}
}

// TestExport_HasEveryStoredField: every stored kind and field is exported, or named in notExported with the reason.
func TestExport_HasEveryStoredField(t *testing.T) {
	t.Parallel()
	s := openServices(t)
	acme, err := s.directory.Create(t.Context(), tenants.NewOrganization{Slug: "acme", Name: "Acme"})
	if err != nil {
		t.Fatal(err)
	}
	m := &marker{want: map[string]string{}}
	out := notExported()
	all := append(s.storedKinds(), s.kinds.people.Kept()...)
	all = append(all, s.kinds.organizations.Organizations, s.kinds.organizations.Installations,
		s.kinds.organizations.Chores, s.kinds.keys.Keys, s.kinds.keys.Rights)
	if n := len(s.storedKinds()) + len(s.kinds.specs()); len(all) != n {
		t.Fatalf("kinds tested = %d, want %d", len(all), n)
	}
	stored := map[string]bool{}
	for _, kept := range all {
		spec := kept.Spec()
		stored[spec.Name] = true
		if out[spec.Name] != "" {
			continue
		}
		kind := reflect.ValueOf(kept)
		in := kind.MethodByName("In")
		if !in.IsValid() { // the audit log has no collection
			continue
		}
		get, _ := in.Type().Out(0).MethodByName("Get")
		rec := reflect.New(get.Type.Out(0).Elem())
		m.fill(rec.Elem(), spec.Name)
		if spec.Name == "organizations" { // set below
			continue
		}
		ws := acme.Workspace()
		if spec.Partition {
			ws = acme.People()
		}
		insert := in.Call([]reflect.Value{reflect.ValueOf(ws)})[0].MethodByName("Insert")
		if err := insert.Call([]reflect.Value{reflect.ValueOf(t.Context()), rec})[0]; !err.IsNil() {
			t.Fatal(spec.Name, err)
		}
	}
	fillOrganization(t.Context(), t, s, m)
	var dump bytes.Buffer
	if _, err := s.transfer.Export(t.Context(), acme, &dump, bundle.ExportOptions{}); err != nil {
		t.Fatal(err)
	}
	for at, text := range m.want {
		kind, rest, _ := strings.Cut(at, ".")
		field, _, _ := strings.Cut(rest, ".")
		switch _, named := out[kind+"."+field]; {
		case out[kind] != "":
		case !named && !strings.Contains(dump.String(), text):
			t.Errorf("%s is stored and not exported; export it, or name it in notExported with the reason", at)
		case named && strings.Contains(dump.String(), text) && !strings.HasSuffix(text, ":true"):
			t.Errorf("%s is exported, though it is named in notExported", at)
		}
	}
	for name := range stored {
		if _, filled := m.want[name+".created_at"]; !filled && out[name] == "" {
			t.Errorf("records of the kind %s are neither exported nor named in notExported", name)
		}
	}
	for name := range out {
		kind, _, isField := strings.Cut(name, ".")
		known := strings.HasPrefix(name, "organizations.") // most cannot be set by the test
		for at := range m.want {
			known = known || at == name || strings.HasPrefix(at, name+".")
		}
		if isField && !known || !stored[kind] {
			t.Errorf("%s is named in notExported, but is not stored", name)
		}
	}
}

// fillOrganization sets the fields of the organization that can be set, whose names must be known ones.
func fillOrganization(ctx context.Context, t *testing.T, s *Services, m *marker) {
	t.Helper()
	for at := range m.want {
		if strings.HasPrefix(at, "organizations.") && at != "organizations.created_at" {
			delete(m.want, at)
		}
	}
	_, err := s.directory.Update(ctx, "acme", func(o *tenants.Organization) error {
		o.Name, o.Providers, o.FrameOrigins = "organization-name", []string{"organization-provider"}, []string{"https://organization-origin.example"}
		o.Color = "#123456"
		o.Features, o.Settings = map[string]bool{tenants.AllFeatures()[0]: true}, map[string]bool{tenants.AllSettings()[0]: true}
		o.Limits = map[string]int64{tenants.AllLimits()[0]: 77}
		m.fill(reflect.ValueOf(&o.RequestLimits).Elem(), "organizations.request_limits")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for field, text := range map[string]string{
		"name": "organization-name", "providers": "organization-provider", "frame_origins": "organization-origin", "color": "#123456", "features": tenants.AllFeatures()[0] + `":true`,
		"settings": tenants.AllSettings()[0], "limits": `":77`,
	} {
		m.want["organizations."+field] = text
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[tenants.Organization]()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		at, stored := "organizations."+name, f.IsExported() && !f.Anonymous && name != "-"
		if stored && notExported()[at] == "" && m.want[at] == "" && name != "request_limits" {
			t.Errorf("%s is stored and not exported; export it, or name it in notExported with the reason", at)
		}
	}
}
