package keyring

// Parse reads the content of a keyring file.
func Parse(text string) (*Keyring, error) {
	held, err := decode([]byte(text))
	if err != nil {
		return nil, err
	}
	return newKeyring(held, source{}), nil
}
