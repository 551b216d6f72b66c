package gateway

// FlushUsageBeside stores the usage counted so far in the background, as happens once a minute.
func (s *Services) FlushUsageBeside() { s.beside.Go("noting what was asked", s.usage.Flush) }
