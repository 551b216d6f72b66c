// Stands in for the module of this name; see replace in the go.mod of the repository.
module github.com/ugorji/go/codec

go 1.26.0
