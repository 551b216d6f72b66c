package demo

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"tenantry/gateway/control"
	"tenantry/modules/imports/bundle"
)

// Tour has the addresses and credentials that the demo shows.
type Tour struct {
	BaseURL string `json:"base_url"`
	Key     string `json:"key"`
	SignIn  struct {
		URL      string `json:"url"`
		Email    string `json:"email"`
		Password string `json:"password"`
		Link     string `json:"link"` // signs in once
	} `json:"sign_in"`
	SharedReport string `json:"shared_report"` // with a token
	OpenReport   string `json:"open_report"`
}

// Begin makes the organization with the ordinary commands. It fills Key and the e-mail address and password of SignIn.
func Begin(ctx context.Context, c *control.Client) (*Tour, error) {
	t := &Tour{}
	t.SignIn.Email, t.SignIn.Password = AdminEmail, newPassword()
	_, err := control.Call[any](ctx, c, "org.create", control.NewOrganization{
		Slug:               Slug,
		OrganizationFields: control.OrganizationFields{Name: Name, Features: map[string]bool{"teams": true}},
	})
	if err == nil {
		_, err = control.Call[any](ctx, c, "user.create", control.NewUser{Org: Slug, UserFields: control.UserFields{
			Name: AdminName, Email: AdminEmail, Roles: []string{"admin"}, Password: t.SignIn.Password,
		}})
	}
	if err != nil {
		return nil, err
	}
	key, err := control.Call[control.IssuedKey](ctx, c, "key.create", control.NewKey{
		Org: Slug, Name: "demo", Kind: "server_full", Permissions: []string{
			"contacts", "manage_custom_objects", "manage_forms", "view_form_submissions", "manage_files",
			"manage_reports", "view_users",
		},
	})
	if err != nil {
		return nil, err
	}
	t.Key = key.Token
	var lines bytes.Buffer
	if err := WriteBundle(&lines, time.Now()); err != nil {
		return nil, err
	}
	answer, err := c.Do(ctx, "import", control.ImportRequest{Org: Slug}, control.Streams{Input: &lines})
	var report bundle.Report
	if err != nil && answer != nil && json.Unmarshal(answer.Data, &report) == nil && len(report.Problems) > 0 {
		err = fmt.Errorf("%w: %s", err, report.Problems[0])
	}
	return t, err
}

func newPassword() string {
	text := strings.ToLower(rand.Text()) // 26 characters, 130 random bits
	return text[:5] + "-" + text[5:10] + "-" + text[10:15] + "-" + text[15:20]
}

// FindReports asks the gateway at addr for the addresses of the two shared reports: OpenReport without a token,
// SharedReport with one.
func (t *Tour) FindReports(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var open struct {
		ShareURL string `json:"share_url"`
	}
	if err := t.call(ctx, http.MethodGet, addr, "/api/custom-reports/"+PlainReportID, "", &open); err != nil {
		return err
	}
	var shared struct {
		URL string `json:"url"`
	}
	body := `{"params": {"country": "DE"}, "expires_in": 86400}`
	if err := t.call(ctx, http.MethodPost, addr, "/api/custom-reports/"+SecureReportID+"/share", body, &shared); err != nil {
		return err
	}
	t.OpenReport, t.SharedReport = open.ShareURL, shared.URL
	return nil
}

// call sends a request with the key and decodes the data of the answer.
func (t *Tour) call(ctx context.Context, method, addr, path, body string, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+addr+path, strings.NewReader(body))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	req.Host = strings.TrimPrefix(t.BaseURL, "http://") // the host name may not resolve on this machine
	req.Header.Set("x-service-token", t.Key)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	defer resp.Body.Close()
	var answer struct {
		Status  string          `json:"status"`
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&answer); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if answer.Status != "ok" {
		return fmt.Errorf("%s: %s", path, answer.Message)
	}
	return json.Unmarshal(answer.Data, into)
}
