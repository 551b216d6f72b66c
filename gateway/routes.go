package gateway

import (
	"context"
	"errors"
	"maps"
	"mime"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"

	"tenantry/config"
	"tenantry/gateway/console"
	"tenantry/gateway/middleware"
	"tenantry/gateway/openapi"
	"tenantry/modules/webhooks"
	"tenantry/operation"
	"tenantry/tenants/limits"
)

// answerRoom is the room for large answers: bytes for each unit of limits.in_flight.
const answerRoom = 384 << 10

// maxContents bounds how many contents this process sends at the same time. Each has a connection and an open file.
// maxUploads bounds how many files it receives.
const (
	maxContents = 1024
	maxUploads  = 1024
	// maxFeeds bounds the feeds that this process serves, of which an organization may have a quarter.
	maxFeeds = 40_960
)

// routes makes the handler of the public listener from the rows of operations, which it returns too.
func (a *App) routes(registry *prometheus.Registry) (http.Handler, []operation.Row, error) {
	proxies := make([]netip.Prefix, 0, len(a.cfg.TrustedProxies))
	for _, text := range a.cfg.TrustedProxies {
		network, err := config.ParseNetwork(text)
		if err != nil {
			return nil, nil, err
		}
		proxies = append(proxies, network)
	}
	cookie := "tenantry_session"
	var unproxied func(context.Context)
	if a.behindTLS() && len(proxies) == 0 {
		unproxied = a.noteProxy
	}
	if a.behindTLS() {
		cookie = "__Host-" + cookie // browsers accept this prefix only from the host itself over TLS
	}
	// Bodies have room for the largest body in half of the requests in flight; decoded values take twice the room of
	// their bodies.
	inFlight := int64(a.cfg.Limits.InFlight)
	work := limits.NewFlight(inFlight)
	bodies := limits.NewFlight(inFlight * operation.MaxBodyLimit / 2)
	decoded := limits.NewFlight(inFlight * operation.MaxBodyLimit)
	answers := limits.NewFlight(inFlight * answerRoom)
	contents, uploads, feeds := limits.NewFlight(maxContents), limits.NewFlight(maxUploads), limits.NewFlight(maxFeeds)
	pipeline := middleware.New(middleware.Options{
		Tenants: a.directory, Keys: a.keys, Sessions: a.sessions, Needs: a.keys.NeedsOf, Limits: a.limiter,
		Work: work, Bodies: bodies, Decoded: decoded, Answers: answers, Contents: contents, Uploads: uploads, Feeds: feeds,
		Audit: a.audit, Idempotency: a.idempotency, Log: a.log,
		Metrics: middleware.NewMetrics(registry), Usage: a.usage, Requests: a.requests, Tracer: a.telemetry.Tracer(),
		Proxies: proxies, Cookie: cookie, BaseURL: a.baseURL, Expired: a.expired, Unproxied: unproxied,
	})
	registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "tenantry_limits_local_total", Help: "Requests that this replica counted by itself because Redis was unavailable.",
	}, func() float64 { return float64(a.limiter.Local()) }), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tenantry_in_flight", Help: "Weight of the requests being answered; reports, lists, exports and bulk calls weigh 4, others 1.",
	}, func() float64 { return float64(work.Used()) }), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tenantry_bodies_bytes", Help: "Bytes reserved for the bodies being read.",
	}, func() float64 { return float64(bodies.Used()) }), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tenantry_answers_bytes", Help: "Bytes reserved for the large answers being made and sent.",
	}, func() float64 { return float64(answers.Used()) }), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tenantry_contents", Help: "Files being sent.",
	}, func() float64 { return float64(contents.Used()) }), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tenantry_uploads", Help: "Requests whose files are being received.",
	}, func() float64 { return float64(uploads.Used()) }), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tenantry_feeds", Help: "Connections to which events are sent.",
	}, func() float64 { return float64(feeds.Used()) }), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tenantry_decoded_bytes", Help: "Bytes reserved for the values decoded from bodies until they are stored.",
	}, func() float64 { return float64(decoded.Used()) }))
	for of := range a.cacheSizes() {
		registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "tenantry_kept", Help: "Entries kept in memory for organizations, by what they are.",
			ConstLabels: prometheus.Labels{"of": of},
		}, func() float64 { return float64(a.cacheSizes()[of]) }))
	}
	pages, err := a.newConsole(cookie, pipeline)
	if err != nil {
		return nil, nil, err
	}
	sources := []operationSource{pages}
	for _, m := range a.modules {
		sources = append(sources, m)
	}
	rows, err := operationRows(sources)
	if err != nil {
		return nil, nil, err
	}
	a.peopleModule.Explain(rows)
	a.events.Explain(rows, a.store.Happens)
	a.usage.Tell(rows)

	gin.SetMode(gin.ReleaseMode)
	engine := gin.New(func(e *gin.Engine) {
		e.RedirectTrailingSlash = false // a redirect would repeat the host and the query
		e.RedirectFixedPath = false
		e.HandleMethodNotAllowed = true // answered below, in the envelope
		e.ForwardedByClientIP = false
		e.UseRawPath = true // %2F in an identifier stays in it
		e.UnescapePathValues = true
	})
	allowed := map[string][]string{}
	open := map[string][]string{}
	options := map[string]http.Header{}
	for i := range rows {
		op := &rows[i]
		for _, path := range op.Paths() {
			route := ginPath(path)
			methods := []string{op.Method}
			if op.Method == http.MethodGet {
				methods = append(methods, http.MethodHead)
			}
			engine.Match(methods, route, func(c *gin.Context) {
				if op.Paged && wantsPage(c) {
					pipeline.Observe("page", c.Writer, c.Request, pages)
					return
				}
				pipeline.Serve(op, c.Writer, c.Request, c.Param)
			})
			allowed[route] = append(allowed[route], methods...)
			for name, value := range op.Options {
				if options[route] == nil {
					options[route] = http.Header{}
				}
				options[route].Set(name, value)
			}
			if op.Kinds&operation.Browser != 0 || op.AnySite {
				open[route] = append(open[route], op.Method) // HEAD, like GET, needs no preflight
			}
		}
	}
	const documentRoute = "/api/openapi.json"
	// The document is built for the first request, because few processes are asked for it.
	serveDocument := middleware.Static("application/json; charset=utf-8", func() []byte {
		info := openapi.Info{Title: "Tenantry", Version: a.version, Cookie: cookie, Message: webhooks.ExampleMessage}
		document, err := openapi.Build(info, rows)
		if err != nil {
			panic(err) // a fault in the rows, which the tests of the document find
		}
		return document.JSON()
	})
	counted := pipeline.WithinLimits(serveDocument) // because it is large
	allowed[documentRoute] = []string{http.MethodGet, http.MethodHead}
	engine.Match(allowed[documentRoute], documentRoute, func(c *gin.Context) {
		pipeline.Observe("openapi", c.Writer, c.Request, counted)
	})
	pages.Serve(rows, engine)
	engine.NoMethod(func(c *gin.Context) { refuseMethod(pipeline, c, allowed, open, options) })
	engine.NoRoute(func(c *gin.Context) { notFound(pipeline, pages, c) })
	handler, err := a.onFileHost(pipeline, engine)
	return handler, rows, err
}

// wantsPage reports whether a caller of a Paged operation wants its page: it accepts HTML, or sends what forms of pages
// send.
func wantsPage(c *gin.Context) bool {
	if c.Request.Method == http.MethodPost {
		media, _, _ := mime.ParseMediaType(c.GetHeader("Content-Type"))
		return media == "application/x-www-form-urlencoded" || media == operation.FormMedia
	}
	return strings.Contains(strings.ToLower(c.GetHeader("Accept")), "text/html")
}

// refuseMethod answers a method that a path does not have: with an envelope, or, to the preflight request of a browser,
// with the methods that pages of other origins may use. open has those methods by route, allowed all methods. Another
// OPTIONS request gets the headers that the rows of the path have in options, by route.
func refuseMethod(
	pipeline *middleware.Pipeline, c *gin.Context, allowed, open map[string][]string, options map[string]http.Header,
) {
	path := c.Request.URL.EscapedPath()
	asksOptions := c.Request.Method == http.MethodOptions && c.GetHeader("Access-Control-Request-Method") == ""
	if h := optionsOf(options, path); asksOptions && len(h) > 0 {
		h.Set("Allow", strings.Join(append(methodsOf(allowed, path), http.MethodOptions), ", "))
		pipeline.Observe("options", c.Writer, c.Request, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			maps.Copy(w.Header(), h)
			w.WriteHeader(http.StatusNoContent)
		}))
		return
	}
	preflight := c.Request.Method == http.MethodOptions && c.GetHeader("Origin") != ""
	if methods := methodsOf(open, path); preflight && len(methods) > 0 {
		middleware.Preflight(c.Writer, c.Request, strings.Join(methods, ", "))
		return
	}
	allow := strings.Join(methodsOf(allowed, path), ", ")
	pipeline.Problem("method_not_allowed", c.Writer, c.Request, &operation.Problem{
		Code: http.StatusMethodNotAllowed, Message: "Method not allowed; this path takes " + allow,
		Header: map[string]string{"Allow": allow},
	})
}

// methodsOf returns the methods of all routes that match the path, sorted.
func methodsOf(routes map[string][]string, path string) []string {
	var found []string
	for route, methods := range routes {
		if fits(route, path) {
			found = append(found, methods...)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// optionsOf returns the headers of all routes that match the path.
func optionsOf(routes map[string]http.Header, path string) http.Header {
	found := http.Header{}
	for route, h := range routes {
		if fits(route, path) {
			maps.Copy(found, h)
		}
	}
	return found
}

// fits reports whether an escaped path matches a route.
func fits(route, path string) bool {
	parts, segments := strings.Split(route, "/"), strings.Split(path, "/")
	if len(parts) != len(segments) {
		return false
	}
	for i, part := range parts {
		if part != segments[i] && (!strings.HasPrefix(part, ":") || segments[i] == "") {
			return false
		}
	}
	return true
}

// notFound answers paths without an operation: with an envelope under /api/, /auth/ and /f/, and under /files/ unless there
// is such a page; elsewhere with a page.
func notFound(pipeline *middleware.Pipeline, pages *console.Module, c *gin.Context) {
	path := c.Request.URL.Path
	if strings.HasPrefix(path, "/api/") || strings.HasPrefix(path, "/auth/") || path == "/api" || path == "/auth" ||
		strings.HasPrefix(path, operation.FormPath) || strings.HasPrefix(path, operation.ContentPath) && !pages.Has(c.Request.URL.EscapedPath()) {
		problem := &operation.Problem{Code: http.StatusNotFound, Message: "No such route"}
		pipeline.Problem("no_route", c.Writer, c.Request, problem)
		return
	}
	c.Status(http.StatusOK) // the framework has set 404; the page sets its own status
	pipeline.Observe("page", c.Writer, c.Request, pages)
}

// ginPath rewrites /a/{id} as /a/:id.
func ginPath(path string) string {
	return strings.NewReplacer("{", ":", "}", "").Replace(path)
}

// operationRows collects the rows of all sources. It returns an error for rows that are invalid, belong to the operator,
// have the name of another, or refer to an operation that does not exist, because no page would offer those.
func operationRows(sources []operationSource) ([]operation.Row, error) {
	var rows []operation.Row
	for _, source := range sources {
		rows = append(rows, source.Operations()...)
	}
	var faults []error
	names := map[string]bool{}
	for i := range rows {
		faults = append(faults, rows[i].Validate()...)
		if rows[i].Credentials&operation.Operator != 0 {
			faults = append(faults, errors.New("operation "+rows[i].Name+" is for the operator, and belongs on the control socket"))
		}
		if names[rows[i].Name] {
			faults = append(faults, errors.New("operation "+rows[i].Name+" is defined twice"))
		}
		names[rows[i].Name] = true
	}
	for _, row := range rows {
		for _, other := range []string{row.Page, row.Defines} {
			if other != "" && !names[other] {
				faults = append(faults, errors.New("operation "+row.Name+" refers to "+other+", which does not exist"))
			}
		}
	}
	return rows, errors.Join(faults...)
}
