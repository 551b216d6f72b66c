package files

import (
	"net/http"
	"slices"

	"tenantry/internal/texts"
	"tenantry/operation"
	"tenantry/tenants"
)

// tusRows returns the rows of resumable uploads.
func (m *Module) tusRows() []operation.Row {
	example := TransferAnswer{
		ID: "665f1c2ab4d3e2f1a0b9c8e4", Offset: 0, Length: 52814, ExpiresAt: texts.Time(exampleUpdated),
	}
	base := operation.Row{
		Policy: operation.Policy{
			Credentials: operation.Key | operation.Session, Kinds: operation.ServerFull, Rule: operation.Needs(tenants.ManageFiles),
			Audit: operation.AuditAlways,
		},
		Request: operation.Request{Params: []operation.Param{
			header("Tus-Resumable", true, "Version of the protocol: 1.0.0.", tusVersion),
		}},
		Response: operation.Response{Failures: []operation.Failure{{
			Code: http.StatusPreconditionFailed, Message: wrongVersion, When: "Tus-Resumable is not 1.0.0",
		}}},
		Docs: operation.Docs{Tag: tag, Aside: true},
	}
	one := base
	one.Params = append(slices.Clone(base.Params), operation.Param{
		Name: "id", In: operation.InPath, Shape: operation.Text, Required: true, Description: "Identifier of the upload.", Example: example.ID,
	})
	one.Failures = append(slices.Clone(base.Failures), operation.Failure{
		Code: http.StatusNotFound, Message: transferMissing, When: "there is no such upload, it has expired, or the caller may not see it",
	})
	one.Path = tusPath + "/{id}"

	create := base
	create.Name, create.Method, create.Path = "uploads.create", http.MethodPost, tusPath
	create.Code, create.Message, create.Data, create.Example = http.StatusCreated, "Upload begun", TransferAnswer{}, example
	create.Params = append(slices.Clone(base.Params),
		header("Upload-Length", true, "Size of the file in bytes.", "52814"),
		header("Upload-Metadata", false, "Fields of the record as the protocol has them: name and value in base64, separated by a "+
			"blank, with commas between. filename, filetype, folder_id, contact_id, type, teams (identifiers with commas "+
			"between) and digest, a Content-Digest of the whole; others are ignored.", "filename bGVhc2UucGRm,filetype YXBwbGljYXRpb24vcGRm"))
	create.Options = map[string]string{
		"Tus-Resumable": tusVersion, "Tus-Version": tusVersion, "Tus-Extension": tusExtensions,
	}
	create.Summary, create.Verb = "Begin a resumable upload", "Begin"
	create.Description = "Begins an upload by the protocol tus 1.0. Its address is in the header Location. Clients for tus need nothing " +
		"but the address of this operation and the key. What has arrived is kept for a day."
	create.Failures = append(slices.Clone(base.Failures), tooLarge())
	create.Handler = m.createTransfer

	get := one
	get.Name, get.Method, get.Message = "uploads.get", http.MethodGet, "Upload found"
	get.Data, get.Example, get.Audit, get.Kinds = TransferAnswer{}, example, operation.NoAudit, operation.ServerFull
	get.Params[0].Required = false
	get.Summary, get.Title = "Get a resumable upload", "Upload"
	get.Description = "Answers how much of an upload has arrived, also in the header Upload-Offset, for HEAD."
	get.Handler = m.getTransfer

	add := one
	add.Params = append(slices.Clone(one.Params), header("Upload-Offset", true, "Where the bytes begin: as many as have arrived.", "0"))
	add.Params[0].Required = true
	add.Name, add.Method, add.Code, add.Timeout = "uploads.append", http.MethodPatch, http.StatusNoContent, uploadTime
	add.Upload, add.UploadExamples, add.UploadLimit = []string{offsetType}, []string{"Hello.\n"}, maxUpload
	add.Failures = append(slices.Clone(one.Failures), uploadFailures()...)
	add.Failures = append(add.Failures, operation.Failure{
		Code: http.StatusConflict, Message: wrongOffset, When: "other bytes have arrived than the caller believes",
	})
	add.Summary, add.Verb = "Continue a resumable upload", "Continue"
	add.Description = "Appends bytes. The file is stored, with its record, together with the last of them; its identifier is then in the " +
		"header X-File-Id. If the connection is cut, what has arrived counts."
	add.Handler = m.appendTransfer

	end := one
	end.Params = slices.Clone(one.Params)
	end.Params[0].Required = true
	end.Name, end.Method, end.Code = "uploads.delete", http.MethodDelete, http.StatusNoContent
	end.Summary, end.Verb = "End a resumable upload", "End"
	end.Description = "Removes what has arrived. A file that is stored already stays."
	end.Handler = m.deleteTransfer
	return []operation.Row{create, get, add, end}
}

const (
	transferMissing = "Upload not found"
	wrongVersion    = "Send the header Tus-Resumable: 1.0.0"
	wrongOffset     = "The upload is at another offset, see the header Upload-Offset"
)

func header(name string, required bool, description, example string) operation.Param {
	return operation.Param{
		Name: name, In: operation.InHeader, Shape: operation.Text, Required: required, Description: description, Example: example,
	}
}
