package driver

import "context"

// Inspector is an engine that can report to an operator on the services it depends on, beyond whether it answers.
type Inspector interface {
	// Inspect returns findings in a stable order, even while the server does not answer. When the context ends, it
	// returns those it has made so far.
	Inspect(ctx context.Context) []Finding
}

// Finding is one observation about an engine for an operator.
type Finding struct {
	Subject string // one word
	Verdict FindingVerdict
	Says    string
	Advice  string // may be empty
}

// FindingVerdict is the severity of a Finding.
type FindingVerdict int

// The verdicts. The zero value means that all is well.
const (
	FindingGood FindingVerdict = iota
	FindingWarning
	FindingWrong
)
