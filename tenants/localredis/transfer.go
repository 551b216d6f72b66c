package localredis

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// entry is a key with its value, which is a string or a sorted set.
type entry struct {
	Key      string             `json:"key"`
	Lifetime time.Duration      `json:"lifetime,omitempty"` // in nanoseconds; 0: it does not expire
	Text     []byte             `json:"text,omitempty"`
	Members  map[string]float64 `json:"members,omitempty"`
}

// Export returns the strings and sorted sets of the server, with their lifetimes, for Import of another one. There are
// no other values in it.
func (s *Server) Export() ([]byte, error) {
	var all []entry
	for _, key := range s.mini.Keys() {
		e := entry{Key: key, Lifetime: s.mini.TTL(key)}
		var err error
		switch kind := s.mini.Type(key); kind {
		case "string":
			var text string
			text, err = s.mini.Get(key)
			e.Text = []byte(text)
		case "zset":
			e.Members, err = s.mini.SortedSet(key)
		default:
			err = fmt.Errorf("a %s cannot be exported", kind)
		}
		if err != nil {
			return nil, fmt.Errorf("export of the in-process Redis: %w", err)
		}
		all = append(all, e)
	}
	return json.Marshal(all)
}

// Import adds what Export of another server has returned.
func (s *Server) Import(raw []byte) error {
	var all []entry
	if err := json.Unmarshal(raw, &all); err != nil {
		return fmt.Errorf("import into the in-process Redis: %w", err)
	}
	var errs []error
	for _, e := range all {
		if e.Members == nil {
			errs = append(errs, s.mini.Set(e.Key, string(e.Text)))
		}
		for member, score := range e.Members {
			_, err := s.mini.ZAdd(e.Key, score, member)
			errs = append(errs, err)
		}
		if e.Lifetime > 0 {
			s.mini.SetTTL(e.Key, e.Lifetime)
		}
	}
	return errors.Join(errs...)
}
