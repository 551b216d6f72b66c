package deliver_test

import (
	"fmt"
	"mime"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"tenantry/internal/deliver"
)

func TestDisposition(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"report.pdf":           `attachment; filename="report.pdf"`,
		"my report (2).pdf":    `attachment; filename="my report (2).pdf"`,
		"Übersicht.pdf":        `attachment; filename="_bersicht.pdf"; filename*=UTF-8''%C3%9Cbersicht.pdf`,
		"👩‍💻.png":              `attachment; filename="___.png"; filename*=UTF-8''%F0%9F%91%A9%E2%80%8D%F0%9F%92%BB.png`,
		"100%.txt":             `attachment; filename="100_.txt"; filename*=UTF-8''100%25.txt`,
		"a%00b.txt":            `attachment; filename="a_00b.txt"; filename*=UTF-8''a%2500b.txt`,
		`quo"te.txt`:           `attachment; filename="quo_te.txt"`,
		"it's.txt":             `attachment; filename="it's.txt"`,
		"it's ü.txt":           `attachment; filename="it's _.txt"; filename*=UTF-8''it%27s%20%C3%BC.txt`,
		`a\".html`:             `attachment; filename="a__.html"`,
		"a\r\nSet-Cookie: x=y": `attachment; filename="a__Set-Cookie_ x=y"`,
		"a\x00.png":            `attachment; filename="a_.png"`,
		"a; filename=b":        `attachment; filename="a; filename=b"`,
		"../../etc/passwd":     `attachment; filename="___.._etc_passwd"`,
		`..\..\boot.ini`:       `attachment; filename="___.._boot.ini"`,
		"/etc/passwd":          `attachment; filename="_etc_passwd"`,
		"C:\\x.exe":            `attachment; filename="C__x.exe"`,
		".htaccess":            `attachment; filename="_htaccess"`,
		"..":                   `attachment; filename="file"`,
		"":                     `attachment; filename="file"`,
		" . ":                  `attachment; filename="file"`,
		"\u202e":               `attachment; filename="file"`,
		"///":                  `attachment; filename="file"`,
		"invoice\u202efdp.exe": `attachment; filename="invoice_fdp.exe"`,
		"x.exe. . ":            `attachment; filename="x.exe"`,
		"CON":                  `attachment; filename="_CON"`,
		"con.txt":              `attachment; filename="_con.txt"`,
		"lpt1 .tar.gz":         `attachment; filename="_lpt1 .tar.gz"`,
		"COM¹":                 `attachment; filename="_COM_"; filename*=UTF-8''_COM%C2%B9`,
		"com10.txt":            `attachment; filename="com10.txt"`,
		"console.log":          `attachment; filename="console.log"`,
		"a\ufffdb":             `attachment; filename="a_b"`,
		"a\U000e0041.txt":      `attachment; filename="a_.txt"`,
		strings.Repeat("a", 190) + "       bbbb.txt": `attachment; filename="` + strings.Repeat("a", 190) + `.txt"`,
		"\xff\xfe.txt":              `attachment; filename="_.txt"`,
		strings.Repeat("a", 10_000): `attachment; filename="` + strings.Repeat("a", 200) + `"`,
		strings.Repeat("ä", 5_000) + ".jpeg": `attachment; filename="` + strings.Repeat("_", 97) +
			`.jpeg"; filename*=UTF-8''` + strings.Repeat("%C3%A4", 97) + ".jpeg",
		strings.Repeat("a", 300) + "." + strings.Repeat("b", 30): `attachment; filename="` + strings.Repeat("a", 200) + `"`,
	} {
		if got := deliver.Disposition(false, name); got != want {
			t.Errorf("%.60q:\ngot  %s\nwant %s", name, got, want)
		}
	}
	if got, want := deliver.Disposition(true, "a.png"), `inline; filename="a.png"`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// hostileNames returns names that try to leave the header, the folder or what people see.
func hostileNames() []string {
	names := []string{
		"", ".", "..", "...", " ", "_", "__", "CON", "nul.txt", "aux.", "PRN", "COM1.x", "LPT9", "CONIN$", "CON:", "con .x",
		"%00", "%2e%2e%2f", "%0d%0aX: y", "=?utf-8?q?x?=", "UTF-8''x", "a;b", "a;filename*=UTF-8''b", `";x="`, `\"`,
		`\`, `"`,
		"🏳️‍🌈", "日本語.txt", "a\u0301.txt", strings.Repeat("x", 10<<10), strings.Repeat("🙂", 3000),
		strings.Repeat("../", 500),
		strings.Repeat("\u202e", 3000), strings.Repeat("%", 300), strings.Repeat("a", 195) + ".tar.gz",
		"a." + strings.Repeat("b", 400),
		strings.Repeat(".", 5000) + "x", strings.Repeat(" ", 199) + ".x" + strings.Repeat(" ", 10),
	}
	characters := []rune{
		0, 1, '\a', '\b', '\t', '\n', '\v', '\f', '\r', 0x1b, 0x1f, 0x7f, 0x80, 0x85, 0x9f, 0xa0, 0xad, 0x61c,
		0x200b, 0x200d, 0x200e,
		0x200f, 0x2028, 0x2029, 0x202a, 0x202b, 0x202c, 0x202d, 0x202e, 0x2060, 0x2066, 0x2067, 0x2068, 0x2069,
		0xfeff, 0xfffd, 0xffff,
		0xe0001, 0xe0041, 0x10ffff, '/', '\\', ':', '*', '?', '"', '<', '>', '|', '.', ' ', '%', ';', ',', '\'', '=',
		'&', '#', '~', '$',
		'`', '{', '[', '(', '@', '!', '^', '_', 'ä', '€', '㍿', '🙂', '／', '＂',
	}
	for _, r := range characters {
		for _, form := range []string{"%c", "%cx.txt", "a%cb.txt", "x.txt%c", "%[1]c%[1]c", "x.%chtml", "%c.htaccess"} {
			names = append(names, fmt.Sprintf(form, r))
		}
	}
	for b := 0x80; b < 0x100; b += 5 { // not UTF-8
		names = append(names, "a"+string([]byte{byte(b)})+".txt")
	}
	return names
}

// TestDispositionOfHostileNames checks that headers can be parsed, and give harmless names.
func TestDispositionOfHostileNames(t *testing.T) {
	t.Parallel()
	names := hostileNames()
	if len(names) < 500 {
		t.Errorf("got %d names, want at least 500", len(names))
	}
	for _, name := range names {
		checkDisposition(t, name)
	}
}

// checkDisposition checks the header for one name.
func checkDisposition(t *testing.T, name string) {
	t.Helper()
	header := deliver.Disposition(false, name)
	if strings.ContainsFunc(header, func(r rune) bool { return r < ' ' || r > '~' }) {
		t.Errorf("%.60q: got %q, want visible ASCII", name, header)
	}
	kind, params, err := mime.ParseMediaType(header)
	if err != nil || kind != "attachment" || len(params) != 1 {
		t.Errorf("%.60q: got %s, %v, %v, want an attachment with one name", name, kind, params, err)
	}
	got := params["filename"]
	const separators = "/\\:\""
	const directions = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u2028\u2029\ufeff"
	if strings.ContainsFunc(got, unicode.IsControl) || strings.ContainsAny(got, separators+directions) ||
		strings.HasPrefix(got, ".") || strings.Trim(got, " .") != got ||
		got == "" || len(got) > 201 || !utf8.ValidString(got) {
		t.Errorf("%.60q: got the name %q, want a harmless one", name, got)
	}
	plain, _, _ := strings.Cut(strings.TrimPrefix(header, `attachment; filename="`), `"`)
	if strings.ContainsAny(plain, `\%`) || len(plain) == 0 {
		t.Errorf("%.60q: got %q for old browsers, want nothing that they decode", name, plain)
	}
	if again := deliver.Disposition(false, got); again != header {
		t.Errorf("%.60q: got %q, but %q for the name in it", name, header, again)
	}
}

func FuzzDisposition(f *testing.F) {
	for _, name := range hostileNames() {
		f.Add(name)
	}
	f.Fuzz(checkDisposition)
}
