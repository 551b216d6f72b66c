package control

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"tenantry/config"
	"tenantry/gateway/backup"
	"tenantry/operation"
)

// BackupRequest asks for a backup.
type BackupRequest struct {
	To           string `json:"to" doc:"the <place> of backups: a folder, which is made if it is missing, or s3://bucket/prefix on the server of backup.s3"`
	Recipient    string `json:"recipient,omitempty" doc:"the public half of an <age key> (age1…), to which the keyring is encrypted (default: backup.recipient of the settings if PLACE is their backup.to, else the backup has no keyring)"`
	Keep         int    `json:"keep,omitempty" rule:"min=0" doc:"remove all but the newest <n> backups of the folder, and those that its log of changes needs (default: none)"`
	WithoutFiles bool   `json:"without_files,omitempty" doc:"leave out the bytes of files, which you copy yourself"`
}

func (s *Server) backupCommand() Command {
	return command(Command{
		Line: "backup --to PLACE", Short: "Back up the whole installation while it serves",
		Audit: operation.AuditAlways,
		Long: "Back up the whole installation while it serves: databases, the bytes of files, and with --recipient the keyring.\n" +
			"PLACE is a folder on the machine of the server, or a bucket as s3://bucket/prefix, whose server and keys\n" +
			"are the settings backup.s3. A backup is named by its time, and appears once it is complete and verified. The bytes of files\n" +
			"are stored once and shared by all backups. Nobody but the user of the server can read a folder.\n" +
			"A backup that was interrupted leaves nothing but bytes of files, which the next one need not copy again.",
		Example: "  tenantry backup --to /backup/tenantry --recipient age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p --keep 14\n" +
			"  tenantry restore --from /backup/tenantry --identity key.txt",
		Hint:  "the backup is not complete; begin again",
		Table: "backup=name, ended, organizations, documents, bytes, keyring",
	}, s.backUp)
}

// checkPlace returns an error unless the argument names a place of backups that does not depend on a working directory.
func checkPlace(argument, place string) error {
	if !config.IsBucket(place) && !filepath.IsAbs(place) {
		return fail(CodeInvalid, "name the folder by its whole path, because the server uses it, or a bucket as s3://bucket/prefix: %s %s",
			argument, place)
	}
	return nil
}

func (s *Server) backUp(ctx context.Context, c *call, in BackupRequest) (*backup.Manifest, error) {
	if err := checkPlace("--to", in.To); err != nil {
		return nil, err
	}
	m, err := s.BackUp(ctx, in.To, backup.Options{
		Recipient: in.Recipient, Keep: in.Keep,
		Told: func(p backup.Progress) {
			c.Progress(Progress{Step: p.Step, Detail: p.Detail, Done: p.Done, Total: p.Total, Bytes: true, Told: true})
		},
	}, !in.WithoutFiles)
	if err != nil {
		return nil, err
	}
	c.Note("backup", m.Name)
	c.Note("to", in.To)
	c.Note("organizations", strconv.Itoa(m.Organizations))
	if m.Keyring == "" {
		c.addNote(fmt.Sprintf("Note: the backup has no keyring, without which encrypted values cannot be read. "+
			"Keep a copy of %s in another place, or name a --recipient.", s.KeyringPath))
	}
	if m.Files == nil {
		c.addNote("Note: the backup has no bytes of files. Copy them after it, because a record is stored after its bytes.")
	}
	for _, note := range m.Notes {
		c.addNote("Note: " + note + ".")
	}
	if len(m.Unsettled) > 0 {
		c.addNote(fmt.Sprintf("Note: these changed while they were copied, and may have records of different moments: %s.",
			strings.Join(m.Unsettled, ", ")))
	}
	if len(m.Damaged) > 0 {
		return m, fail(CodeFailed, "the backup %s has all but what is damaged, and older backups were kept, from which "+
			"the damaged databases can be restored: %s", m.Name, strings.Join(m.Damaged, "; "))
	}
	return m, nil
}
