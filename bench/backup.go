package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// Data of the installation that is backed up.
const (
	backedUp  = 2_000   // organizations
	largeOnes = 10      // of them, with that many contacts each:
	contactsN = 100_000 // together about 1 GB
)

// mixed is reads and writes of all organizations, a fifth of them writes.
func mixed(s *server, orgs []org) *traffic {
	t := &traffic{process: s.process, server: s, spread: even}
	for i, o := range orgs {
		t.requests = append(t.requests, o.request(http.MethodGet, countPath, ""))
		if i%4 == 0 {
			t.requests = append(t.requests, o.request(http.MethodPost, "/api/contacts", `{"first_name":"Ada","country":"DE"}`))
		}
	}
	return t
}

// archive is a place of backups beside an installation with many organizations.
type archive struct {
	*server
	*crowd
	to string
}

func (b *bench) archive(ctx context.Context) (a *archive, err error) {
	a = &archive{to: filepath.Join(b.dir, "backups")}
	if a.server, a.crowd, err = b.crowdOn(ctx, "backed-up", backedUp/min(b.small, 50)); err != nil {
		return nil, err
	}
	_, err = memoize(b, "the large organizations of the backups", func() (bool, error) {
		for _, o := range a.orgs[:largeOnes] {
			if err := b.give(ctx, a.server, o, contactsBundle(contactsN/b.small)); err != nil {
				return false, err
			}
		}
		return true, nil
	})
	return a, err
}

// backup makes one, and returns the time that it took.
func (a *archive) backup(ctx context.Context, b *bench) (seconds float64, err error) {
	began := time.Now()
	_, err = b.command(ctx, a.server, "backup", "--to", a.to, "--keep", "1")
	return time.Since(began).Seconds(), err
}

// backingUp measures mixed load over a few connections in turns alone and while backups are made one after another.
func backingUp(ctx context.Context, b *bench) (facts []fact, err error) {
	a, err := b.archive(ctx)
	if err != nil {
		return nil, err
	}
	bytes, err := size(filepath.Join(a.data, "db"))
	if err != nil {
		return nil, err
	}
	what := fmt.Sprintf("of %s organizations and %.2f GB of databases", withCommas(len(a.orgs)), float64(bytes)/1e9)
	alone, err := a.backup(ctx, b)
	if err != nil {
		return nil, err
	}
	facts = append(facts, fact{"a backup " + what + " without load", number(alone) + " s", ""})
	t := mixed(a.server, a.orgs)
	if err := warmUp(ctx, a.server, a.orgs); err != nil {
		return nil, err
	}
	for _, connections := range []int{1, 4} {
		f, err := a.beside(ctx, b, t, connections)
		if err != nil {
			return facts, err
		}
		f.what = fmt.Sprintf("mixed load over %d connections, next to backups %s", connections, what)
		b.say("%s: %s", f.what, f.figure)
		facts = append(facts, f)
	}
	return facts, nil
}

// beside measures the traffic alone and next to backups, which go on for as long as it takes.
func (a *archive) beside(ctx context.Context, b *bench, t *traffic, connections int) (f fact, err error) {
	var alone, next, took, medians [2]float64
	var p99 [2][]float64
	failed := 0.0
	for range b.turns {
		for with := range 2 {
			ctx, cancel := context.WithCancel(ctx)
			made := make(chan error, 1)
			go func() {
				var err error
				for with == 1 && err == nil && ctx.Err() == nil {
					var s float64
					if s, err = a.backup(ctx, b); err == nil {
						took[0], took[1] = took[0]+s, took[1]+1
					}
				}
				if ctx.Err() != nil {
					err = nil // the last one was ended
				}
				made <- err
			}()
			if with == 1 {
				time.Sleep(time.Second / 2) // until it has begun
			}
			r, err := b.run(ctx, t, connections, b.seconds)
			cancel()
			if err := errors.Join(err, <-made); err != nil {
				return f, err
			}
			p99[with] = append(p99[with], r.P99/1000)
			medians[with] += r.Median / 1000 / float64(b.turns)
			alone[with], next[with] = alone[with]+r.Requests, next[with]+r.Seconds
			failed += r.Refused + r.Broken
		}
	}
	quiet, beside := median(p99[0]), median(p99[1])
	f.figure = fmt.Sprintf("p99 %s ms, alone %s; median %s and %s ms; %s and %s answers a second; %.0f failed",
		number(beside), number(quiet), number(medians[1]), number(medians[0]),
		number(alone[1]/next[1]), number(alone[0]/next[0]), failed)
	if took[1] > 0 {
		f.figure += fmt.Sprintf("; a backup took %s s", number(took[0]/took[1]))
	}
	f.goal = "1.2 times, none failed"
	return f, nil
}

// restoring measures how long an organization of a backup takes to be restored, in place and after it was erased, while
// the others are served.
func restoring(ctx context.Context, b *bench) (facts []fact, err error) {
	a, err := b.archive(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := a.backup(ctx, b); err != nil {
		return nil, err
	}
	slug := a.orgs[0].slug
	t := mixed(a.server, a.orgs[largeOnes:])
	for _, erased := range []bool{false, true} {
		what := "restoring an organization of " + withCommas(contactsN/b.small) + " contacts"
		if erased {
			what += " that was erased"
			if _, err := b.command(ctx, a.server, "org", "delete", slug, "--yes", "--now"); err != nil {
				return facts, err
			}
		}
		for _, load := range []bool{false, true} {
			if erased && load {
				break // it is there again
			}
			if load {
				what += ", next to mixed load over 4 connections"
			}
			if !erased { // something to set back
				if _, _, err := t.ask(ctx, a.orgs[0].request(http.MethodPost, "/api/contacts", `{"first_name":"Ada"}`)); err != nil {
					return facts, err
				}
			}
			loaded, cancel := context.WithCancel(ctx)
			ended := make(chan error, 1)
			go func() {
				var err error
				for load && err == nil && loaded.Err() == nil {
					_, err = b.run(loaded, t, 4, 1)
				}
				if loaded.Err() != nil {
					err = nil
				}
				ended <- err
			}()
			began := time.Now()
			out, err := b.command(ctx, a.server, "org", "restore", slug, "--from", a.to, "--yes")
			took := time.Since(began)
			cancel()
			if err := errors.Join(err, <-ended); err != nil {
				return facts, err
			}
			var done struct {
				HeldSeconds float64 `json:"held_seconds"`
			}
			if err := json.Unmarshal(out, &done); err != nil {
				return facts, err
			}
			facts = append(facts, fact{what, fmt.Sprintf("%s s, writes waited %s s", number(took.Seconds()), number(done.HeldSeconds)), "30 s"})
		}
	}
	dir := filepath.Join(b.dir, "restored")
	keys, err := os.ReadFile(filepath.Join(a.data, "keyring.json"))
	if err == nil {
		err = os.Mkdir(dir, 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "keyring.json"), keys, 0o600)
	}
	if err != nil {
		return facts, err
	}
	began := time.Now()
	if _, err := b.commandOn(ctx, dir, "restore", "--from", a.to); err != nil {
		return facts, err
	}
	facts = append(facts, fact{"restoring all of it into another folder", number(time.Since(began).Seconds()) + " s", ""})
	return facts, os.RemoveAll(dir)
}
