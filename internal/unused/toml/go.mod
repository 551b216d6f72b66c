// Stands in for the module of this name; see replace in the go.mod of the repository.
module github.com/pelletier/go-toml/v2

go 1.26.0
