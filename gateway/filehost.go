package gateway

import (
	"net/http"
	"net/url"
	"strings"

	"tenantry/gateway/middleware"
	"tenantry/operation"
)

// onFileHost serves files at the address of the setting file_host: <file_host>/<slug>/<hash>. Nothing else is served
// there, so that what organizations have uploaded shares its origin with no page. Without the setting it returns next.
func (s *Services) onFileHost(pipeline *middleware.Pipeline, next http.Handler) (http.Handler, error) {
	if s.cfg.FileHost == "" {
		return next, nil
	}
	base, err := url.Parse(strings.TrimSuffix(s.cfg.FileHost, "/"))
	if err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.EqualFold(pipeline.Host(r), base.Host) {
			next.ServeHTTP(w, r)
			return
		}
		rest, below := strings.CutPrefix(r.URL.EscapedPath(), base.Path+"/")
		slug, hash, _ := strings.Cut(rest, "/")
		organization, err := url.Parse(s.baseURL(slug))
		if !below || slug == "" || hash == "" || strings.ContainsAny(rest, "%.") || strings.Contains(hash, "/") || err != nil {
			problem := &operation.Problem{Code: http.StatusNotFound, Message: "No such route"}
			pipeline.Problem("no_route", w, r, problem)
			return
		}
		there := *r
		there.Header = r.Header.Clone()
		there.Header.Del("X-Forwarded-Host")
		there.Header.Del("Cookie")
		there.Host, there.URL = organization.Host, &url.URL{Path: operation.ContentPath + "content/" + hash, RawQuery: r.URL.RawQuery}
		next.ServeHTTP(w, &there)
	}), nil
}
