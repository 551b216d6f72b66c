package publicform

import (
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"tenantry/gateway/console/ask"
	"tenantry/gateway/console/layout"
	"tenantry/gateway/console/site"
	"tenantry/gateway/console/visit"
	"tenantry/internal/fault"
	"tenantry/internal/formdata"
	"tenantry/modules/forms"
	"tenantry/operation"
)

// Bounds of what a page sends.
const (
	maxForm       = 512 << 10 // bytes of a form without files
	maxValues     = 2000
	maxParts      = 1000
	maxFieldBytes = 64 << 10 // of the names and values of a form with files, without these
	maxKept       = 100      // files that have arrived
	maxWait       = 2 * time.Second
	maxWaits      = 30 * time.Second // for all calls of a page together
)

// submission is what one page sends.
type submission struct {
	p    *Pages
	w    http.ResponseWriter
	r    *http.Request
	v    visit.Visitor
	form *forms.Form
	sent url.Values

	paused bool          // it has files, and holds no room for work
	waited time.Duration // for limits
}

// take reads what the page sends, and stores it.
func (s *submission) take() {
	media, params, err := mime.ParseMediaType(s.r.Header.Get("Content-Type"))
	if err == nil && media == operation.FormMedia {
		err = s.readParts(params["boundary"])
	} else if err == nil {
		var body []byte
		if body, err = s.v.Form(s.r, maxForm); err == nil {
			if strings.Count(string(body), "&") >= maxValues {
				err = errTooMuch
			} else {
				s.sent, err = url.ParseQuery(string(body))
			}
		}
	}
	var full *operation.Problem
	switch {
	case errors.Is(err, errAnswered):
	case errors.As(err, &full):
		s.p.refuse(s.w, s.r, err)
	case err != nil || len(s.sent[keptName]) > maxKept:
		s.p.Log.DebugContext(s.r.Context(), "a public form did not arrive", "error", err)
		s.p.Layout.Message(s.w, http.StatusBadRequest, "", "The form did not arrive",
			"It may be too large. Go back and try again.")
	default:
		s.sent = prefixed(s.sent)
		s.store()
	}
}

// prefixed returns what was sent with the names of the page's own controls. Forms of other sites may name fields by their
// keys alone. Names that begin with _ are not of fields.
func prefixed(sent url.Values) url.Values {
	named := url.Values{}
	for name, values := range sent {
		if !strings.HasPrefix(name, "_") && !strings.HasPrefix(name, within+".") {
			name = within + "." + name
		}
		named[name] = append(named[name], values...)
	}
	return named
}

var (
	errTooMuch  = errors.New("the form is too long")
	errAnswered = errors.New("the request was answered")
)

// readParts reads a form with files, and sends each file on while it arrives. It returns errAnswered if a file is
// refused: the visitor then sees why.
func (s *submission) readParts(boundary string) error {
	if boundary == "" {
		return http.ErrNotMultipart
	}
	s.v.Pause()
	s.paused = true
	parts := formdata.NewReader(s.r.Body, boundary)
	left := maxFieldBytes
	for range maxParts {
		part, err := parts.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := part.FormName()
		if part.FileName() != "" {
			if err := s.attach(strings.TrimPrefix(name, within+"."), part); err != nil {
				return err
			}
			continue
		}
		value, err := io.ReadAll(io.LimitReader(part, int64(left)+1))
		if err != nil {
			return err
		}
		if left -= len(name) + len(value); left < 0 {
			return errTooMuch
		}
		if part.Header.Get("Content-Type") == "" { // others are controls of files without one
			s.sent.Add(name, string(value))
		}
	}
	return errTooMuch
}

// attach sends a file on.
func (s *submission) attach(key string, part *multipart.Part) error {
	query := url.Values{"field": {key}, "filename": {part.FileName()}}
	s.addProof(query)
	a, err := s.ask(ask.Call{
		Row: s.p.attach, Path: s.path(), Query: query.Encode(), File: part,
		MediaType: part.Header.Get("Content-Type"), Connection: s.w,
	})
	if err == nil && a.OK() {
		s.sent.Add(keptName, key+"|"+a.Data.Get("token").Text+"|"+a.Data.Get("filename").Text)
		return nil
	}
	s.w.Header().Set("Connection", "close") // the rest of the form is not read
	if err == nil && a.Code == http.StatusUnprocessableEntity || a.Code == http.StatusRequestEntityTooLarge {
		faults := a.Faults()
		at := within + "." + key
		for i := range faults {
			if faults[i].Field == "field" || faults[i].Field == "filename" {
				faults[i].Field = at
			}
		}
		if len(faults) == 0 {
			faults = []fault.Fault{{Field: at, Code: fault.Length, Message: site.Sentence(a.Message)}}
		}
		s.again(a.Code, faults, "")
		return errAnswered
	}
	s.refused(a, err)
	return errAnswered
}

// ask makes a call. A page with several files makes as many calls at once, so it waits if they are too fast for the limit
// of its visitor; a call that is over a limit has read nothing of its file.
func (s *submission) ask(q ask.Call) (a ask.Reply, err error) {
	for {
		a, err = s.p.Client.Ask(s.r.Context(), s.r, q)
		seconds, _ := strconv.Atoi(a.Header.Get("Retry-After"))
		wait := time.Duration(seconds) * time.Second
		if err != nil || a.Code != http.StatusTooManyRequests || !s.paused || wait <= 0 || wait > maxWait || s.waited+wait > maxWaits {
			return a, err
		}
		s.waited += wait
		select {
		case <-time.After(wait):
		case <-s.r.Context().Done():
			return a, s.r.Context().Err()
		}
	}
}

// addProof adds the next proof of work to a query.
func (s *submission) addProof(query url.Values) {
	if proofs := s.sent[proofName]; len(proofs) > 0 {
		query.Set("proof", proofs[0])
		s.sent[proofName] = proofs[1:]
	}
}

func (s *submission) path() map[string]string { return map[string]string{"pid": s.r.PathValue("pid")} }

// store stores the submission, and answers.
func (s *submission) store() {
	s.v.Pause() // the call needs room of its own, of which one address has little
	query := url.Values{}
	s.addProof(query)
	if trap := s.sent.Get(trapName); trap != "" {
		query.Set("honeypot", "filled in")
	}
	a, err := s.ask(ask.Call{
		Row: s.p.fill, Path: s.path(), Query: query.Encode(), IdempotencyKey: s.sent.Get(onceName),
		Body: map[string]any{within: values(s.form, s.sent)},
	})
	switch {
	case err == nil && a.OK() && a.Data.Get("thanks_url").Text != "":
		// The address is a setting of the form.
		http.Redirect(s.w, s.r, a.Data.Get("thanks_url").Text, http.StatusSeeOther)
	case err == nil && a.OK():
		text := a.Data.Get("thanks").Text
		if text == "" {
			text = "What you have sent has arrived."
		}
		s.p.Layout.Render(s.w, http.StatusOK, "public-thanks", thanks{
			layout.Frame{Title: "Thank you", Organization: s.v.Tenant.Org.Name}, strings.Split(text, "\n"),
		})
	case err == nil && (a.Code == http.StatusUnprocessableEntity || a.Code == http.StatusBadRequest ||
		a.Code == http.StatusRequestEntityTooLarge || a.Code == http.StatusInsufficientStorage ||
		a.Code == http.StatusConflict):
		faults, text := a.Faults(), ""
		if len(faults) == 0 {
			text = site.Sentence(a.Message)
		}
		s.dropKept(faults)
		s.again(a.Code, faults, text)
	default:
		s.refused(a, err)
	}
}

// thanks is the page that follows a form that was sent.
type thanks struct {
	layout.Frame
	Lines []string
}

// dropKept forgets the files of fields with faults, so that they are chosen again.
func (s *submission) dropKept(faults []fault.Fault) {
	var kept []string
	for _, one := range s.sent[keptName] {
		field, _, _ := splitKept(one)
		wrong := false
		for _, f := range faults {
			wrong = wrong || f.Field == within+"."+field
		}
		if !wrong {
			kept = append(kept, one)
		}
	}
	s.sent[keptName] = kept
}

// again answers with the form as it was typed, and with its faults.
func (s *submission) again(code int, faults []fault.Fault, text string) {
	s.p.render(s.w, code, s.r, s.v, s.form, s.sent, faults, text)
}

// refused answers with the reason why an operation was not carried out.
func (s *submission) refused(a ask.Reply, err error) {
	switch {
	case err != nil:
		s.p.refuse(s.w, s.r, err)
	case a.Code == http.StatusNotFound:
		s.p.missing(s.w)
	case a.Code == http.StatusForbidden:
		s.p.Layout.Message(s.w, a.Code, "", "The form was not taken", "It was sent from another site. Open its page and send it there.")
	case a.Code == http.StatusTooManyRequests:
		seconds, _ := strconv.Atoi(a.Header.Get("Retry-After"))
		s.p.Layout.TooMany(s.w, s.r, operation.TooManyRequests(time.Duration(seconds)*time.Second))
	case a.Code == http.StatusServiceUnavailable:
		s.p.Layout.Unavailable(s.w, "")
	default:
		s.p.Layout.Message(s.w, http.StatusInternalServerError, "", "Something went wrong", "Please try again.")
	}
}
