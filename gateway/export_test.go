package gateway

// FlushUsageInBackground stores the usage counted so far in the background, as happens once a minute.
func (s *Services) FlushUsageInBackground() { s.background.Go("storing usage", s.usage.Flush) }
