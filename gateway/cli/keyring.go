package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"tenantry/crypto/keyring"
	"tenantry/crypto/sealing"
	"tenantry/gateway/control"
)

// reinstateCommand works on the keyring's file alone, because data that need the key cannot be opened before. A running
// server reads the file again when it meets a data key that this key wraps.
func (p *program) reinstateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reinstate VERSION",
		Short: "Reinstate a retired encryption key, for a backup from before it was retired",
		Args:  oneArg("the version"),
		Long: "Reinstate a retired encryption key, for a backup from before it was retired. The key is used for reading only. The\n" +
			"command does not open the data, which need the key to be opened. Once all data keys are wrapped by the primary key,\n" +
			"tenantry keyring retire takes the key out of use again.",
	}
	cmd.RunE = p.run(func(_ context.Context, args []string) error {
		version, err := strconv.Atoi(args[0])
		if err != nil || version < 1 {
			return usagef("%q is not a version; tenantry keyring list shows them", args[0])
		}
		cfg, err := p.load(nil)
		if err != nil {
			return err
		}
		ring, err := keyring.Open(cfg.KeyringPath())
		if err == nil {
			err = ring.Reinstate(version)
		}
		if err != nil {
			return err
		}
		for _, k := range ring.List() {
			if k.Version == version {
				err = p.print(control.Reinstated{State: string(k.State), Version: version}, "version, state", false)
			}
		}
		return err
	})
	return cmd
}

// transferKeyFiles is the result of transfer-key: the files of the two halves of a key.
type transferKeyFiles struct {
	KeyID   string `json:"key_id"`
	Private string `json:"private"`
	Public  string `json:"public"`
}

func (p *program) transferKeyCommand() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "transfer-key --out FILE",
		Short: "Create a key under which encrypted values travel to another organization",
		Args:  noArgs,
		Long: "Create a key under which encrypted values travel to another organization. FILE gets the private half, readable by you\n" +
			"alone: create it where values are imported and keep it there. FILE.pub gets the public half, for tenantry export --secrets.",
	}
	cmd.Flags().StringVarP(&path, "out", "o", "", "the `file` of the private half, which must not exist yet")
	_ = cmd.MarkFlagRequired("out") // fails only for a flag that does not exist
	cmd.RunE = p.run(func(context.Context, []string) error {
		key, err := sealing.NewPrivateKey()
		if err != nil {
			return err
		}
		if err := writeNew(path, key.Text().Reveal(), 0o600); err != nil {
			return err
		}
		if err := writeNew(path+".pub", key.Public().TransferText(), 0o644); err != nil {
			return errors.Join(err, os.Remove(path))
		}
		files := transferKeyFiles{key.Public().KeyID(), path, path + ".pub"}
		return p.print(files, "private half=private, public half=public, key=key_id", false)
	})
	return cmd
}

// writeNew writes a line into a new file. It fails if the file exists.
func writeNew(path, line string, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return fmt.Errorf("keyring transfer-key: %w", err)
	}
	if _, err := f.WriteString(line + "\n"); err != nil {
		return errors.Join(fmt.Errorf("keyring transfer-key: %w", err), f.Close(), os.Remove(path))
	}
	return f.Close()
}
