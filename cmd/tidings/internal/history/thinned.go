package history

import (
	"encoding/json"
	"fmt"
	"time"
)

// SetThinned notes in the folder which resources are thinned, for those who read it
// later without the server; see [RecordingOptions].
func (s *Store) SetThinned(thin map[string]time.Duration) error {
	value, err := json.Marshal(thin)
	if err == nil {
		err = s.set(thinnedKey(), value)
	}
	if err != nil {
		return fmt.Errorf("open the history in %s: note which resources are thinned: %w", s.dir, err)
	}
	return nil
}

// Thinned returns what [Store.SetThinned] has noted last.
func (s *Store) Thinned() (map[string]time.Duration, error) {
	thin := map[string]time.Duration{}
	value, err := s.get(thinnedKey())
	if err == nil && value != nil {
		err = json.Unmarshal(value, &thin)
	}
	if err != nil {
		return nil, fmt.Errorf("open the history in %s: read which resources are thinned: %w", s.dir, err)
	}
	return thin, nil
}
