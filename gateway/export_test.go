package gateway

// FlushUsageInBackground stores the usage counted so far in the background, as happens once a minute.
func (s *Services) FlushUsageInBackground() { s.background.Go("noting what was asked", s.usage.Flush) }
