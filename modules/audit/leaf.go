package audit

import (
	"bytes"
	"encoding/json"

	"golang.org/x/mod/sumdb/tlog"

	"tenantry/internal/texts"
)

// leaf is a record as the tree has it. The fields and their order are part of existing trees: further fields must come
// at the end, and only if they are set.
type leaf struct {
	ID        string            `json:"id"`
	Operation string            `json:"operation"`
	Subject   string            `json:"subject"`
	Account   string            `json:"account"`
	Remote    string            `json:"remote"`
	Outcome   string            `json:"outcome"`
	Code      int               `json:"code"`
	RequestID string            `json:"request_id"`
	Records   []string          `json:"records"`
	Facts     map[string]string `json:"facts"`
	CreatedAt string            `json:"created_at"`
}

// leafText returns the text whose hash is the record's leaf: the line of the record in an export, without its end.
func (r *Record) leafText() ([]byte, error) {
	one := leaf{
		ID: r.ID, Operation: r.Operation, Subject: r.Subject, Account: r.Account, Remote: r.Remote, Outcome: r.Outcome,
		Code: r.Code, RequestID: r.RequestID, Records: r.Records, Facts: r.Facts, CreatedAt: texts.Time(r.CreatedAt),
	}
	if one.Records == nil {
		one.Records = []string{}
	}
	if one.Facts == nil {
		one.Facts = map[string]string{}
	}
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	err := enc.Encode(one)
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), err
}

// leafHash returns the hash of the record in the tree: SHA-256 of a zero byte and its text.
func (r *Record) leafHash() (tlog.Hash, error) {
	text, err := r.leafText()
	return tlog.RecordHash(text), err
}
