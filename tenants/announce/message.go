package announce

import (
	"encoding/binary"
	"errors"
)

// A message is a version byte, the sender's random number, the message's number at that
// sender, and one to maxOrganizations organizations; numbers are big endian.
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
	// number grows by one with every message of a sender, and by one more where the
	// sender dropped something: whoever misses a number missed a change.
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
