package site

import "testing"

// TestFirstLetters checks that a text may begin with any letter.
func TestFirstLetters(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]string{
		"": {"", ""}, "apple": {"Apple.", "apple"}, "Äpfel": {"Äpfel.", "äpfel"}, "ärger.": {"Ärger.", "ärger."}, "“no” is": {"“no” is.", "“no” is"},
	} {
		if got := [2]string{Sentence(text), Lower(text)}; got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
