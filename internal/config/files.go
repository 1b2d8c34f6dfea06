package config

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// files reads what the settings name: secrets into their places, and certificates to see that they can be used.
func (l *loader) files() {
	if l.read == nil {
		return
	}
	c := &l.cfg
	if text, ok := l.secretFile("kafka.sasl.password_file", c.Kafka.SASL.PasswordFile); ok {
		c.Kafka.SASL.Password = NewSecret(text)
	}
	if text, ok := l.secretFile("redis.password_file", c.Redis.PasswordFile); ok {
		c.Redis.URL = withPassword(c.Redis.URL, text)
	}
	if text, ok := l.secretFile("postgres.password_file", c.Postgres.PasswordFile); ok {
		c.Postgres.URL = withPassword(c.Postgres.URL, text)
	}
	l.webhookFiles(c.Alerts.Webhooks)
	if c.Kafka.TLS.Enabled {
		l.tlsFiles("kafka.tls", c.Kafka.TLS.files())
	}
	for i := range c.Routes {
		d, path := &c.Routes[i].Downstream, join(l.routePath(i), "downstream")
		token := join(path, "bearer_token_file")
		if text, ok := l.secretFile(token, d.BearerTokenFile); ok {
			l.rule(isToken(text), token, "holds blanks or control characters", "a file with a token as HTTP allows it")
			d.BearerToken = NewSecret(text)
		}
		l.tlsFiles(join(path, "tls"), d.TLS.files())
	}
}

// secretFile reads a file that holds one secret. Its last line break is not part of it.
func (l *loader) secretFile(path, name string) (string, bool) {
	if name == "" || l.broken(path) {
		return "", false
	}
	data, err := l.read(name)
	if err != nil {
		l.problem(path, reading(err), "a file that holds the secret")
		return "", false
	}
	text := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	if text == "" {
		l.problem(path, "is an empty file", "a file that holds the secret")
		return "", false
	}
	return text, true
}

// tlsFiles reports files that no TLS configuration can be made of.
func (l *loader) tlsFiles(path string, fs tlsFiles) {
	_, err := fs.build(l.read)
	if file, ok := errors.AsType[*fileError](err); ok {
		p := join(path, file.setting)
		l.rule(false, p, file.why, "a PEM file", join(path, "cert_file"), join(path, "key_file"), join(path, "ca_file"))
	}
}

// hasPassword reports whether an address holds a password.
func hasPassword(u URL) bool {
	parsed, err := url.Parse(u.Reveal())
	if err != nil {
		return false
	}
	_, has := parsed.User.Password()
	return has || parsed.Query().Has("password")
}

// withPassword puts a password into an address.
func withPassword(u URL, password string) URL {
	parsed, err := url.Parse(u.Reveal())
	if err != nil {
		return u // reported already
	}
	parsed.User = url.UserPassword(parsed.User.Username(), password)
	return NewURL(parsed.String())
}

// tlsFiles is what a client's TLS configuration is made of.
type tlsFiles struct{ ca, cert, key, serverName string }

// fileError says which setting's file is of no use.
type fileError struct{ setting, file, why string }

func (e *fileError) Error() string { return fmt.Sprintf("%s %s %s", e.setting, e.file, e.why) }

func (t KafkaTLS) files() tlsFiles { return tlsFiles{t.CAFile, t.CertFile, t.KeyFile, t.ServerName} }

func (t DownstreamTLS) files() tlsFiles {
	return tlsFiles{t.CAFile, t.CertFile, t.KeyFile, t.ServerName}
}

// Build reads the files and returns the client configuration, or nil where TLS is not enabled.
func (t KafkaTLS) Build() (*tls.Config, error) {
	if !t.Enabled {
		return nil, nil //nolint:nilnil // no TLS is no configuration, as everywhere in the standard library
	}
	return t.files().build(readFile)
}

// Build reads the files and returns the client configuration.
func (t DownstreamTLS) Build() (*tls.Config, error) {
	c, err := t.files().build(readFile)
	if err != nil {
		return nil, err
	}
	c.InsecureSkipVerify = t.Insecure // asked for in so many words
	return c, nil
}

func (fs tlsFiles) build(read func(string) ([]byte, error)) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: fs.serverName}
	if fs.ca != "" {
		pem, err := read(fs.ca)
		if err != nil {
			return nil, &fileError{"ca_file", fs.ca, reading(err)}
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, &fileError{"ca_file", fs.ca, "holds no certificate"}
		}
	}
	if fs.cert == "" || fs.key == "" {
		return c, nil
	}
	cert, err := read(fs.cert)
	if err != nil {
		return nil, &fileError{"cert_file", fs.cert, reading(err)}
	}
	key, err := read(fs.key)
	if err != nil {
		return nil, &fileError{"key_file", fs.key, reading(err)}
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, &fileError{"cert_file", fs.cert, "and key_file are no pair: " + err.Error()}
	}
	c.Certificates = []tls.Certificate{pair}
	return c, nil
}
