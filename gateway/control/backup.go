package control

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"tenantry/gateway/backup"
	"tenantry/operation"
)

// BackupRequest asks for a backup.
type BackupRequest struct {
	To           string `json:"to" doc:"the <folder> of backups, which is made if it is missing"`
	Recipient    string `json:"recipient,omitempty" doc:"the public half of an <age key> (age1…), to which the keyring is encrypted (default: the backup has no keyring)"`
	Keep         int    `json:"keep,omitempty" rule:"min=0" doc:"remove all but the newest <n> backups of the folder (default: none)"`
	WithoutFiles bool   `json:"without_files,omitempty" doc:"leave out the bytes of files, which you copy yourself"`
}

func (s *Server) backupCommand() Command {
	return command(Command{
		Line: "backup --to FOLDER", Short: "Back up the whole installation while it serves",
		Audit: operation.AuditAlways,
		Long: "Back up the whole installation while it serves: databases, the bytes of files, and with --recipient the keyring.\n" +
			"FOLDER gets a folder for each backup, named by its time, which appears when it is complete and checked. The bytes of files\n" +
			"are there once for all backups. Nobody else may read any of it. The server writes it, so FOLDER is a path of its machine.\n" +
			"A backup that was interrupted leaves nothing but bytes of files, which the next one need not copy again.",
		Example: "  tenantry backup --to /backup/tenantry --recipient age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p --keep 14\n" +
			"  tenantry restore --from /backup/tenantry --identity key.txt",
		Hint:  "the backup is not complete; begin again",
		Table: "backup=name, ended, organizations, documents, bytes, objects=files.objects, keyring",
	}, s.backUp)
}

func (s *Server) backUp(ctx context.Context, c *call, in BackupRequest) (*backup.Manifest, error) {
	if !filepath.IsAbs(in.To) {
		return nil, fail(CodeInvalid, "name the folder by its whole path, because the server writes the backup: --to %s", in.To)
	}
	m, err := s.BackUp(ctx, backup.Options{
		Folder: in.To, Recipient: in.Recipient, Keep: in.Keep,
		Told: func(p backup.Progress) {
			c.Progress(Progress{Step: p.Step, Detail: p.Detail, Done: p.Done, Total: p.Total, Bytes: true, Told: true})
		},
	}, !in.WithoutFiles)
	if err != nil {
		s.Log.WarnContext(ctx, "a backup ended", "folder", in.To, "ok", false, "error", err)
		return nil, err
	}
	s.Log.InfoContext(ctx, "a backup ended", "folder", in.To, "ok", true, "backup", m.Name, "bytes", m.Bytes)
	c.Note("backup", m.Name)
	c.Note("organizations", strconv.Itoa(m.Organizations))
	if m.Keyring == "" {
		c.addNote(fmt.Sprintf("Note: the backup has no keyring, without which encrypted values cannot be read. "+
			"Keep a copy of %s in another place, or name a --recipient.", s.KeyringPath))
	}
	if m.Files == nil {
		c.addNote("Note: the backup has no bytes of files. Copy them after it, because a record is stored after its bytes.")
	}
	if len(m.Damaged) > 0 {
		return m, fail(CodeFailed, "the backup %s has all but what is damaged, and older backups were kept, from which "+
			"the damaged databases can be restored: %s", m.Name, strings.Join(m.Damaged, "; "))
	}
	return m, nil
}
