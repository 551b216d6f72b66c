package store

import "tenantry/backends/driver"

// Engine keeps the documents of a backend.
type Engine = driver.Engine

// The operators of a condition; package driver defines each.
const (
	OpEq             = driver.Eq
	OpNe             = driver.Ne
	OpGt             = driver.Gt
	OpGte            = driver.Gte
	OpLt             = driver.Lt
	OpLte            = driver.Lte
	OpIn             = driver.In
	OpNin            = driver.Nin
	OpContains       = driver.Contains
	OpStartsWith     = driver.StartsWith
	OpContainsFold   = driver.ContainsFold
	OpStartsWithFold = driver.StartsWithFold
	OpExists         = driver.Exists
	OpFrom           = driver.From
	OpBefore         = driver.Before
)

// The types of a field.
const (
	TypeAny     = driver.Any
	TypeString  = driver.String
	TypeInt     = driver.Int
	TypeFloat   = driver.Float
	TypeBool    = driver.Bool
	TypeTime    = driver.Time
	TypeDate    = driver.Date
	TypeStrings = driver.Strings
)

// The buckets of a time.
const (
	NoBucket = driver.NoBucket
	Day      = driver.Day
	Week     = driver.Week
	Month    = driver.Month
	Quarter  = driver.Quarter
	Year     = driver.Year
)

// The measures of an aggregation.
const (
	MeasureCount    = driver.Count
	MeasureSum      = driver.Sum
	MeasureAvg      = driver.Avg
	MeasureMin      = driver.Min
	MeasureMax      = driver.Max
	MeasureDistinct = driver.Distinct
)
