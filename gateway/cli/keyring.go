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

// reinstateCommand works on the keyring's file alone, since data that need the key do not open before. A server that
// runs reads the file again when it meets what the key wraps.
func (p *program) reinstateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "reinstate VERSION", Short: "Bring a retired encryption key back, for a backup from before it was retired", Args: oneArg("the version"),
		Long: "Bring a retired encryption key back, for a backup from before it was retired. It is used to read alone, and works without\n" +
			"the data, which do not open before. tenantry keyring retire takes it out of use again, once all data keys are under the primary.",
	}
	cmd.RunE = p.run(func(_ context.Context, args []string) error {
		version, err := strconv.Atoi(args[0])
		if err != nil || version < 1 {
			return usagef("%q is no version; tenantry keyring list shows them", args[0])
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

// transferPair says where the halves of a key are.
type transferPair struct {
	KeyID   string `json:"key_id"`
	Private string `json:"private"`
	Public  string `json:"public"`
}

func (p *program) transferKeyCommand() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use: "transfer-key --out FILE", Short: "Make a key under which encrypted values travel to another organization", Args: noArgs,
		Long: "Make a key under which encrypted values travel to another organization. FILE gets the private half, readable by you alone:\n" +
			"make it where values are imported and keep it there. FILE.pub gets the public half, for tenantry export --secrets.",
	}
	cmd.Flags().StringVarP(&path, "out", "o", "", "the `file` of the private half, which must not be there")
	_ = cmd.MarkFlagRequired("out") // fails for flags that are not there
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
		return p.print(transferPair{key.Public().KeyID(), path, path + ".pub"}, "private half=private, public half=public, key=key_id", false)
	})
	return cmd
}

// writeNew writes a line into a file that must not be there.
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
