module filtergolden

go 1.25

require github.com/hashicorp/go-bexpr v0.1.17

require (
	github.com/mitchellh/mapstructure v1.5.0 // indirect
	github.com/mitchellh/pointerstructure v1.2.1 // indirect
)
