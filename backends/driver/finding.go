package driver

import "context"

// Inspector is an engine that can tell an operator more of what it depends on than whether it answers.
type Inspector interface {
	// Inspect tells what it knows, also while its server does not answer, in an order that stays.
	// It ends with the context, and then tells what it has found until then.
	Inspect(ctx context.Context) []Finding
}

// Finding is what an operator should know of an engine.
type Finding struct {
	Subject string // what it is about, in a word
	Verdict FindingVerdict
	Says    string
	Advice  string // may be empty
}

// FindingVerdict is how bad a Finding is.
type FindingVerdict int

// The verdicts. The zero value means that all is well.
const (
	FindingGood FindingVerdict = iota
	FindingWarning
	FindingWrong
)
