package config

import (
	"fmt"
	"io"
	"log/slog"
)

// hidden is what is printed of a secret.
const hidden = "***"

// Secret is a text that no way of printing shows: fmt with any verb, encoding/json, YAML and slog print ***, or nothing
// where the text is empty. Only [Secret.Reveal] gives it away. The zero value is the empty secret.
type Secret struct {
	// A pointer, because fmt does not call the methods of values held in unexported fields of other types: there it
	// prints an address.
	text *string
}

// NewSecret hides a text.
func NewSecret(text string) Secret {
	if text == "" {
		return Secret{}
	}
	return Secret{text: &text}
}

// Reveal returns the text itself. Do not print it.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// Empty reports whether there is no text.
func (s Secret) Empty() bool { return s.Reveal() == "" }

// Equal reports whether two secrets hold the same text.
func (s Secret) Equal(other Secret) bool { return s.Reveal() == other.Reveal() }

func (s Secret) String() string {
	if s.Empty() {
		return ""
	}
	return hidden
}

// Format prints *** for every verb.
func (s Secret) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, s.String()) // a fmt.State keeps no error
}

// MarshalText makes *** of the secret for encoding/json and everything else that knows texts.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// MarshalYAML makes *** of the secret.
func (s Secret) MarshalYAML() (any, error) { return s.String(), nil }

// LogValue makes *** of the secret in logs.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }
