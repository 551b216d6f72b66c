package announce

import (
	"encoding/binary"
	"errors"
)

// A message consists of a version byte, the sender's random ID, the sender's number of the message, and one to
// maxOrganizations organizations. Numbers are big endian.
const (
	messageVersion   = 1
	instanceBytes    = 16
	headBytes        = 1 + instanceBytes + 8
	maxOrganizations = 512
)

var errMalformed = errors.New("malformed announcement")

type instance [instanceBytes]byte

type message struct {
	from instance
	// number grows by one with every message of a sender, and by one more if the sender dropped changes, so that
	// receivers notice missing changes by a missing number.
	number uint64
	orgs   []int64
}

func (m message) encode() []byte {
	out := make([]byte, 0, headBytes+8*len(m.orgs))
	out = append(out, messageVersion)
	out = append(out, m.from[:]...)
	out = binary.BigEndian.AppendUint64(out, m.number)
	for _, org := range m.orgs {
		out = binary.BigEndian.AppendUint64(out, uint64(org))
	}
	return out
}

func decode(text string) (message, error) {
	var m message
	rest := len(text) - headBytes
	if rest < 8 || rest%8 != 0 || rest/8 > maxOrganizations || text[0] != messageVersion {
		return m, errMalformed
	}
	raw := []byte(text)
	copy(m.from[:], raw[1:])
	m.number = binary.BigEndian.Uint64(raw[1+instanceBytes:])
	m.orgs = make([]int64, 0, rest/8)
	for raw = raw[headBytes:]; len(raw) > 0; raw = raw[8:] {
		org := int64(binary.BigEndian.Uint64(raw))
		if org <= 0 {
			return message{}, errMalformed
		}
		m.orgs = append(m.orgs, org)
	}
	return m, nil
}
