package console

// maxForm bounds what a form sends, in bytes.
const maxForm = 1 << 20
