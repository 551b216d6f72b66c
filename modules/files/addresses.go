package files

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"hash"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"tenantry/internal/picture"
	"tenantry/operation"
	"tenantry/tenants"
)

// AddressPurpose is the purpose of the data keys that sign the addresses of files. Only the current key counts, so a new
// one ends all addresses.
const AddressPurpose = "file-addresses"

// The parameters of an address.
const (
	paramFile    = "file"  // public identifier of the file
	paramUntil   = "until" // Unix seconds
	paramKey     = "key"   // the signature
	paramThumb   = "thumbnail"
	paramVersion = "version" // identifier of an earlier content
	paramSave    = "download"
)

// addresses makes the addresses of an organization's files. An address is valid until a full multiple of the link life,
// so that it stays the same for a while and browsers can cache what they read there.
type addresses struct {
	base  string // empty: no file has bytes
	mac   hash.Hash
	until string
}

// addresses returns what makes the addresses of these files. The keys are read only if a file is stored here.
func (m *Module) addresses(ctx context.Context, c *operation.Call, files []File) (*addresses, error) {
	at := &addresses{}
	if slices.ContainsFunc(files, func(f File) bool { return f.Hash != "" }) {
		at.base = m.cdnBase(c)
	}
	if !slices.ContainsFunc(files, func(f File) bool { return f.Stored() }) {
		return at, nil
	}
	mac, err := m.signer(ctx, c.Tenant)
	if err != nil {
		return nil, err
	}
	life := m.deps.LinkLife
	at.mac = mac
	at.until = strconv.FormatInt(m.deps.Now().Truncate(life).Add(2*life).Unix(), 10)
	return at, nil
}

// signer returns the MAC of the organization's addresses.
func (m *Module) signer(ctx context.Context, t *tenants.Tenant) (hash.Hash, error) {
	keys, err := m.deps.Contents.Keys(ctx, t, AddressPurpose)
	if err != nil {
		return nil, fmt.Errorf("keys that sign addresses of files: %w", err)
	}
	return hmac.New(sha256.New, keys.Current().Bytes()), nil
}

// file returns the address of the bytes of a file: as they are stored elsewhere, public, or signed. Empty: the file has
// none.
func (a *addresses) file(f *File, public bool) string {
	if !ValidHash(f.Hash) { // any other text could lead out of the organization's folder
		return ""
	}
	at := a.base + "/" + f.Hash
	if !f.Stored() {
		return at
	}
	at += "?" + paramFile + "=" + url.QueryEscape(f.PID)
	if public {
		return at
	}
	return at + "&" + paramUntil + "=" + a.until + "&" + paramKey + "=" + sign(a.mac, f, a.until, "")
}

// version returns the signed address of an earlier content of a file.
func (a *addresses) version(f *File, v *Version) string {
	earlier := *f
	earlier.Hash = v.Hash
	return a.base + "/" + v.Hash + "?" + paramFile + "=" + url.QueryEscape(f.PID) + "&" + paramVersion + "=" + v.ID +
		"&" + paramUntil + "=" + a.until + "&" + paramKey + "=" + sign(a.mac, &earlier, a.until, v.ID)
}

// sign returns the signature of an address. It covers the teams, so that an address that was made for others ends when
// they change.
func sign(mac hash.Hash, f *File, until, version string) string {
	mac.Reset()
	for _, part := range []string{until, version, f.Hash, f.PID, strings.Join(slices.Sorted(slices.Values(f.Teams)), ",")} {
		mac.Write([]byte(part))
		mac.Write([]byte{0})
	}
	const enough = 16 // bytes
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:enough])
}

// isPublic reports whether everybody may read a file that lies in the folder, or in none (nil).
func isPublic(t *tenants.Tenant, f *File, in *Folder) bool {
	all := t.Org.Setting(tenants.SettingPublicFiles)
	switch {
	case len(f.Teams) > 0, in != nil && len(in.Teams) > 0:
		return false
	case in == nil:
		return all
	}
	return all || in.Public && !in.Deleted
}

// arePublic reports which of the files everybody may read. in are their folders, nil for "". Pictures whose metadata
// cannot be removed are not public. Error: store.ErrUnavailable.
func (m *Module) arePublic(ctx context.Context, t *tenants.Tenant, files []File, in map[string]*Folder) ([]bool, error) {
	public := make([]bool, len(files))
	var pictures []string
	for i := range files {
		f := &files[i]
		folder, known := in[f.FolderID]
		if public[i] = known && f.Stored() && isPublic(t, f, folder); public[i] && picture.Supports(f.Detected) {
			pictures = append(pictures, f.Hash)
		}
	}
	if len(pictures) == 0 {
		return public, nil
	}
	slices.Sort(pictures)
	found, err := m.deps.Contents.FindAll(ctx, t, slices.Compact(pictures))
	for i := range files {
		if f := &files[i]; public[i] && picture.Supports(f.Detected) {
			public[i] = found[f.Hash] != nil && found[f.Hash].Plain != nil
		}
	}
	return public, err
}

// withThumbnail returns the address of the small picture of the file at an address.
func withThumbnail(address string) string { return address + "&" + paramThumb + "=true" }

// lasts reports whether an address is valid at that time. A time that is no number has passed.
func lasts(until string, now time.Time) bool {
	at, err := strconv.ParseInt(until, 10, 64)
	return err == nil && now.Unix() < at
}
